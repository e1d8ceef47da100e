import argparse
import logging
import multiprocessing as mp

from association import associate

log = logging.getLogger("catalog")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--days", type=int, default=190)
    p.add_argument("--ncpu", type=int, default=2)
    p.add_argument("--days-per-process", type=int, default=2)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    events = 0
    with mp.Pool(args.ncpu, maxtasksperchild=args.days_per_process) as pool:
        for day, n, _ in pool.imap_unordered(associate, range(args.days), chunksize=1):
            events += n
            if day % 10 == 0:
                log.info("day %d: %d events so far", day, events)
    log.info("catalogue has %d events", events)


if __name__ == "__main__":
    main()
