"""Collects episodes with a central policy server."""
import argparse
import logging
import multiprocessing as mp

from envs import run_env
from server import serve


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--envs", type=int, default=3)
    p.add_argument("--max-steps", type=int, default=150)
    p.add_argument("--context", type=int, default=512)
    p.add_argument("--max-batch", type=int, default=16)
    p.add_argument("--report-every", type=float, default=5.0)
    p.add_argument("--seed", type=int, default=11)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(name)s: %(message)s")
    requests = mp.Queue()
    replies = [mp.Queue() for _ in range(args.envs)]
    procs = [mp.Process(target=serve, name="server", daemon=True,
                        args=(requests, replies, args.context, args.max_batch, args.report_every))]
    procs += [mp.Process(target=run_env, name="env-%d" % i, daemon=True,
                         args=(i, requests, replies[i], args.max_steps, args.seed)) for i in range(args.envs)]
    for p in procs:
        p.start()
    for p in procs:
        p.join()


if __name__ == "__main__":
    main()
