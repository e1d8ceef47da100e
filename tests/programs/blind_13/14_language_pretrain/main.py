"""Pretrains a small language model on three ranks; the corpus comes from a mirror first."""
import argparse
import logging
import multiprocessing as mp
import os
import shutil
import socket
import sys
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch._dynamo  # noqa: F401  torch.optim needs it; imported once, before the fork

from mirror import run_mirror
from pretrain import run_rank


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--ranks", type=int, default=3)
    p.add_argument("--corpus-mb", type=float, default=18.0)
    p.add_argument("--mirror-kbps", type=float, default=450.0, help="what the mirror grants a client, KB per second")
    p.add_argument("--train-seconds", type=float, default=50.0)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--seq-len", type=int, default=64)
    p.add_argument("--log-interval", type=int, default=10)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s[%(process)d] %(message)s")
    ctx = mp.get_context("fork")
    recv, send = ctx.Pipe(duplex=False)
    mirror = ctx.Process(target=run_mirror, args=(send, args.corpus_mb, args.mirror_kbps), name="mirror", daemon=True)
    mirror.start()
    url = recv.recv()
    cache = tempfile.mkdtemp(prefix="lm-cache-")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    ranks = [ctx.Process(target=run_rank, args=(r, port, url, cache, args), name=f"rank{r}", daemon=True) for r in range(args.ranks)]
    try:
        for r in ranks:
            r.start()
        for r in ranks:
            r.join()
    finally:
        mirror.terminate()
        shutil.rmtree(cache, ignore_errors=True)
    return max(abs(r.exitcode) for r in ranks)


if __name__ == "__main__":
    sys.exit(main())
