import argparse
import logging
import random

from evaluator import MATHVerifyEvaluator

GOLD = ["2*x + 1", "x^2 - 3*x + 2", "sqrt(2)*x", "pi*x^2", "factorial(6)/x", "(x + 1)^3"]
RIGHT = ["1 + x + x", "(x - 1)*(x - 2)", "x*2^0.5", "x*pi*x", "720/x", "x^3 + 3*x^2 + 3*x + 1"]
WRONG = ["2*x - 1", "x^2 + 2", "2*x", "pi*x", "6/x", "x^3 + 1", "no answer", "x +* 2"]
RUNAWAY = ["9^9^9^3 * x", r"\boxed{" + "a" * 34 + "!}", "factorial(3000000) - x"]


def make_predictions(n, seed):
    rng = random.Random(seed)
    references, predictions = [], []
    for i in range(n):
        k = rng.randrange(len(GOLD))
        references.append(GOLD[k])
        if i % 7 == 5:
            predictions.append(RUNAWAY[i // 7 % len(RUNAWAY)])
        else:
            predictions.append(RIGHT[k] if rng.random() < 0.7 else rng.choice(WRONG))
    return references, predictions


def parse_args():
    p = argparse.ArgumentParser(description="Verify the answers of a math benchmark run")
    p.add_argument("--samples", type=int, default=190)
    p.add_argument("--timeout", type=float, default=8.0)
    p.add_argument("--parallel", type=int, default=3)
    p.add_argument("--seed", type=int, default=1)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    references, predictions = make_predictions(args.samples, args.seed)
    result = MATHVerifyEvaluator(args.timeout, args.parallel).score(references, predictions)
    logging.info("accuracy %.1f, %d answers ran into the time limit", result["accuracy"], result["timeouts"])


if __name__ == "__main__":
    main()
