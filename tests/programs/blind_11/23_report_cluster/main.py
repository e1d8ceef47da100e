"""Run the report cluster: a guard, a pusher, a monitor and some workers."""
import argparse
import logging
import time

from cluster import Cluster, Conf


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--queue-limit", type=int, default=40)
    parser.add_argument("--max-age", type=float, default=8.0,
                        help="renew a worker after that many seconds (picks up changed templates)")
    parser.add_argument("--seconds", type=float, default=900)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [Q] %(levelname)s %(message)s",
                        datefmt="%H:%M:%S")
    cluster = Cluster(Conf(workers=args.workers, queue_limit=args.queue_limit, max_age=args.max_age))
    cluster.start()
    end = time.time() + args.seconds
    while time.time() < end:
        cluster.guard()
        time.sleep(0.5)
    cluster.stop()


if __name__ == "__main__":
    main()
