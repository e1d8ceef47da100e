"""Embeds a stream of documents with a few worker processes under a nanny."""
import argparse
import logging
import time

import torch.multiprocessing as mp

from nanny import Nanny
from source import DocumentSource

log = logging.getLogger("embed")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--lifetime", type=float, default=22.0, help="seconds after which a worker is replaced")
    p.add_argument("--lifetime-stagger", type=float, default=6.0)
    p.add_argument("--batch", type=int, default=24, help="documents per task")
    p.add_argument("--window", type=int, default=60, help="tasks per window of the source")
    p.add_argument("--window-pause", type=float, default=12.0, help="the source delivers a window, then pauses")
    p.add_argument("--windows", type=int, default=100000)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(name)s %(message)s")
    tasks, results = mp.Queue(maxsize=2 * args.window), mp.Queue()
    nanny = Nanny(args.workers, tasks, results, args.lifetime, args.lifetime_stagger)
    nanny.start()
    source = DocumentSource(args.batch)
    done = 0
    for window in range(args.windows):
        begin = time.time()
        for _ in range(args.window):
            tasks.put(source.next_task())
        pending = args.window
        norms = 0.0
        while pending:
            nanny.tend()
            task_id, norm = nanny.next_result(timeout=0.5)
            if task_id is not None:
                norms += norm
                pending -= 1
                done += 1
        log.info("window %d: %d tasks in %.1fs, mean norm %.3f, %d in total, %d workers replaced so far",
                 window, args.window, time.time() - begin, norms / args.window, done, nanny.replaced)
        resume = time.time() + args.window_pause
        while time.time() < resume:
            nanny.tend()
            time.sleep(0.2)
    nanny.stop()


if __name__ == "__main__":
    main()
