"""Scores the candidates of a hyper-parameter sweep on a pool of workers."""
import argparse
import logging
import multiprocessing as mp
import random

from errors import SweepError
from scoring import Candidate, init_worker, score_candidate

log = logging.getLogger("sweep")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=60)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--keep", type=int, default=5)
    return parser.parse_args()


def draw_candidates(count, seed):
    rng = random.Random(seed)
    for ident in range(count):
        lr = 8.0 if ident % 13 == 9 else 10 ** rng.uniform(-3.5, -2.0)
        yield Candidate(ident, lr, rng.choice((8, 16, 32)), rng.randrange(1 << 20))


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    candidates = list(draw_candidates(args.candidates, args.seed))
    scores, failed = [], 0
    with mp.Pool(args.workers, initializer=init_worker, initargs=(1,)) as pool:
        results = pool.imap_unordered(score_candidate, candidates)
        while True:
            try:
                score = next(results)
            except StopIteration:
                break
            except SweepError as exc:
                failed += 1
                log.warning("skipped: %s", exc)
                continue
            scores.append(score)
            log.info("candidate %d loss %.4f in %.1fs (%d/%d)", score.ident, score.loss, score.seconds,
                     len(scores) + failed, len(candidates))
    for score in sorted(scores, key=lambda s: s.loss)[: args.keep]:
        log.info("best: %s", score)


if __name__ == "__main__":
    main()
