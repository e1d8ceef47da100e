import argparse
import logging
import multiprocessing as mp
import queue

from pool import RotatingPool

log = logging.getLogger("main")


def main(args):
    tasks, results = mp.Queue(), mp.Queue()
    pool = RotatingPool(args.workers, tasks, results, args.lifetime)
    sent = received = 0
    while received < args.simulations:
        while sent < args.simulations and sent - received < 12:
            tasks.put(sent)
            sent += 1
        try:
            results.get(timeout=0.5)
            received += 1
            if received % 50 == 0:
                log.info("%d/%d simulations", received, args.simulations)
        except queue.Empty:
            pass
        pool.rotate()
    pool.close()
    log.info("finished")


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--simulations", type=int, default=1000)
    p.add_argument("--lifetime", type=float, default=9)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    main(p.parse_args())
