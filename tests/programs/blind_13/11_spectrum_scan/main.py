"""Computes band powers over a long recording with a few scanner processes."""
import argparse
import json
import logging
import multiprocessing as mp
import os
import shutil
import sys
import tempfile
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

from recording import write_recording
from scanner import run_scanner

log = logging.getLogger("scan")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--recording", default=None, help="float32 file; a synthetic one is written when missing")
    p.add_argument("--size-mb", type=int, default=680)
    p.add_argument("--scanners", type=int, default=2)
    p.add_argument("--chunk", type=int, default=250_000, help="samples per chunk")
    p.add_argument("--chunks-per-second", type=float, default=3.8, help="per scanner; leaves room for other users of the host")
    p.add_argument("--bands", type=int, default=16)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s[%(process)d] %(message)s")
    tmp = None
    path = args.recording
    if path is None:
        tmp = tempfile.mkdtemp(prefix="recording-")
        path = os.path.join(tmp, "channel0.f32")
        write_recording(path, args.size_mb)

    samples = os.path.getsize(path) // 4
    part = samples // args.scanners
    ctx = mp.get_context("fork")
    results = ctx.Queue()
    procs = []
    started = time.monotonic()
    try:
        for i in range(args.scanners):
            p = ctx.Process(target=run_scanner, args=(path, i * part, part, args, results), name=f"scanner-{i}", daemon=True)
            p.start()
            procs.append(p)
        summary = [results.get() for _ in procs]
        for p in procs:
            p.join()
    finally:
        if tmp:
            shutil.rmtree(tmp, ignore_errors=True)
    log.info("scanned %d samples in %.0f s", samples, time.monotonic() - started)
    print(json.dumps(sorted(summary, key=lambda s: s["start"])))
    return max(p.exitcode for p in procs)


if __name__ == "__main__":
    sys.exit(main())
