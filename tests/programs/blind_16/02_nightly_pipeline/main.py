"""Runs the nightly aggregation pipeline against a central scheduler."""
import argparse
import logging
import multiprocessing as mp

from client import RemoteScheduler
from scheduler import serve
from tasks import nightly_tasks
from worker import Worker


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--date", default="2014-11-12")
    p.add_argument("--regions", type=int, default=40)
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--ping-interval", type=float, default=0.2)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO,
                        format="%(asctime)s [%(process)d] %(name)s: %(message)s")

    ctx = mp.get_context("fork")
    receiver, sender = ctx.Pipe(duplex=False)
    server = ctx.Process(target=serve, args=(sender,), name="schedulerd", daemon=True)
    server.start()
    port = receiver.recv()

    sch = RemoteScheduler("localhost", port)
    worker = Worker(sch, n_workers=args.workers, ping_interval=args.ping_interval)
    worker.start_keepalive()
    for task in nightly_tasks(args.date, args.regions):
        worker.add(task)
    worker.run()
    logging.info("pipeline for %s complete", args.date)


if __name__ == "__main__":
    main()
