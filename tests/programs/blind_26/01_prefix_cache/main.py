"""Small tensor-parallel decoder with a prefix cache over host memory and storage."""
import argparse
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile

import numpy as np
import torch.multiprocessing as mp

from scheduler import PAGE_SHAPE, run_rank
from storage import PageStore


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--tp", type=int, default=3)
    p.add_argument("--rate", type=float, default=12.0, help="requests per second")
    p.add_argument("--sessions", type=int, default=40)
    p.add_argument("--pages-per-prompt", type=int, default=16)
    p.add_argument("--host-pages", type=int, default=200)
    p.add_argument("--reserved-pages", type=int, default=64)
    p.add_argument("--prefetch-budget", type=float, default=2.0)
    p.add_argument("--max-running", type=int, default=8)
    p.add_argument("--seed", type=int, default=3)
    p.add_argument("--storage-dir", default=None)
    return p.parse_args()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    args.storage_dir = args.storage_dir or tempfile.mkdtemp(prefix="kvpages_")
    try:
        store = PageStore(args.storage_dir, PAGE_SHAPE)
        rng = np.random.default_rng(args.seed)
        for prefix in range(args.sessions):
            store.write(prefix, rng.standard_normal((args.pages_per_prompt, *PAGE_SHAPE), dtype=np.float32))
        logging.info("%d prompts in %s", args.sessions, args.storage_dir)
        mp.start_processes(run_rank, (args.tp, free_port(), args), nprocs=args.tp, daemon=True,
                           start_method="fork")
    finally:
        shutil.rmtree(args.storage_dir, ignore_errors=True)


if __name__ == "__main__":
    main()
