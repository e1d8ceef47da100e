"""Synchronous successive halving over learning rates and widths, bracket after bracket."""
import argparse
import logging
import multiprocessing as mp
import random
from multiprocessing.connection import wait

from trial import run_trial

log = logging.getLogger("tuner")


class Bracket:
    def __init__(self, number: int, ctx, args, rng: random.Random):
        self.number, self.args = number, args
        self.live = {}
        for i in range(args.trials):
            config = {"lr": 10 ** rng.uniform(-3.5, -1), "width": rng.choice([32, 64, 256, 384]), "seed": rng.randrange(10**6)}
            conn, child = ctx.Pipe()
            name = f"bracket{number}-trial{i}"
            process = ctx.Process(target=run_trial, args=(name, config, child), name=name, daemon=True)
            process.start()
            child.close()
            self.live[name] = (process, conn, config)

    def rung(self, milestone: int) -> dict[str, float]:
        waiting = {}
        for name, (_, conn, _) in self.live.items():
            conn.send(milestone)
            waiting[conn] = name
        scores = {}
        while waiting:
            for conn in wait(list(waiting)):
                name, _, score = conn.recv()
                scores[name] = score
                del waiting[conn]
        return scores

    def stop(self, name: str):
        process, conn, _ = self.live.pop(name)
        process.terminate()
        process.join()
        conn.close()

    def run(self):
        milestone = self.args.grace
        while True:
            scores = self.rung(milestone)
            ranked = sorted(scores, key=scores.get)
            if milestone >= self.args.max_steps:
                best = ranked[0]
                result = (scores[best], self.live[best][2])
                for name in ranked:
                    self.stop(name)
                return result
            keep = max(1, len(ranked) // self.args.eta)
            for name in ranked[keep:]:
                log.info("rung %d: %s stopped at %.4f", milestone, name, scores[name])
                self.stop(name)
            milestone = min(milestone * self.args.eta**2, self.args.max_steps)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("--eta", type=int, default=2)
    parser.add_argument("--grace", type=int, default=1500)
    parser.add_argument("--max-steps", type=int, default=20000)
    parser.add_argument("--brackets", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s[%(process)d] %(message)s")
    ctx = mp.get_context("spawn")
    rng = random.Random(args.seed)
    best = None
    for number in range(args.brackets):
        score, config = Bracket(number, ctx, args, rng).run()
        if best is None or score < best[0]:
            best = (score, config)
        log.info("bracket %d done: %.4f; best so far %.4f with %s", number, score, best[0], best[1])


if __name__ == "__main__":
    main()
