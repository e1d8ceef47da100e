import argparse
import logging
import multiprocessing as mp
import time

import torch

from parse import init_worker, parse_document

log = logging.getLogger("ingest")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--documents", type=int, default=1100)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--recycle-after", type=int, default=70,
                   help="documents per worker process; the parser keeps memory until its process ends")
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    mean = torch.zeros(500)
    pids = set()
    t0 = time.time()
    with mp.Pool(args.workers, initializer=init_worker, maxtasksperchild=args.recycle_after) as pool:
        for i, (n, pid, vec) in enumerate(pool.imap_unordered(parse_document, range(args.documents)), 1):
            mean += (torch.from_numpy(vec) - mean) / i
            pids.add(pid)
            if i % 25 == 0:
                log.info("%d of %d documents, %d worker processes so far, %.1f docs/s", i, args.documents, len(pids),
                         i / (time.time() - t0))
    log.info("ingest complete, mean %.4f", mean.mean())


if __name__ == "__main__":
    main()
