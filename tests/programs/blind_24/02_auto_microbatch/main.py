"""Launcher: starts one trainer per slot, passes the rendezvous through the environment."""
import argparse
import logging
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
log = logging.getLogger("launch")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--nproc", type=int, default=3)
    ap.add_argument("--max-minutes", type=float, default=2.25)
    args, rest = ap.parse_known_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [launch] %(message)s")

    env = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()),
               WORLD_SIZE=str(args.nproc), OMP_NUM_THREADS="1")
    procs = []
    for rank in range(args.nproc):
        cmd = [sys.executable, "-u", str(HERE / "train.py"), *rest]
        procs.append(subprocess.Popen(cmd, env=dict(env, RANK=str(rank), LOCAL_RANK=str(rank))))
    log.info("started %s", [p.pid for p in procs])

    deadline = time.monotonic() + args.max_minutes * 60
    try:
        while any(p.poll() is None for p in procs):
            if any(p.poll() not in (None, 0) for p in procs):
                log.error("a trainer failed, stopping the others")
                break
            if time.monotonic() > deadline:
                log.info("allocation used up, stopping")
                break
            time.sleep(0.5)
    finally:
        for p in procs:
            if p.poll() is None:
                p.kill()
        for p in procs:
            p.wait()


if __name__ == "__main__":
    main()
