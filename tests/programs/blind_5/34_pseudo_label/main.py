import argparse
import logging
import multiprocessing as mp

import torch

from labeler import Scorer, label_shard

log = logging.getLogger("pseudo")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--shards", type=int, default=2)
    p.add_argument("--rows", type=int, default=20000)
    p.add_argument("--dim", type=int, default=32)
    p.add_argument("--classes", type=int, default=8)
    p.add_argument("--rounds", type=int, default=30)
    p.add_argument("--threads", type=int, default=2)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    centres = torch.randn(args.classes, args.dim)
    for rnd in range(args.rounds):
        conf, _ = Scorer(centres).score(torch.randn(args.rows, args.dim))
        log.info("round %d: validation confidence %.3f", rnd, conf.mean())
        jobs = []
        for shard in range(args.shards):
            here, there = mp.Pipe(duplex=False)
            pr = mp.Process(target=label_shard, args=(there, centres, shard, args.rows, args.dim), daemon=True)
            pr.start()
            jobs.append((pr, here))
        for pr, here in jobs:
            shard, kept, first = here.recv()
            pr.join()
            log.info("round %d: shard %d kept %d rows, first %s", rnd, shard, kept, first)


if __name__ == "__main__":
    main()
