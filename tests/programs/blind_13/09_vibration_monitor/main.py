"""Watches vibration channels of machines: one feeder, one detector process per line."""
import argparse
import logging
import multiprocessing as mp
import os
import signal
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

from detector import run_detector
from feed import run_feed

log = logging.getLogger("monitor")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--lines", type=int, default=2, help="production lines, one detector each")
    p.add_argument("--machines", type=int, default=12, help="machines per line")
    p.add_argument("--chunk", type=int, default=16, help="samples per chunk")
    p.add_argument("--chunks-per-second", type=float, default=4)
    p.add_argument("--hidden", type=int, default=96)
    p.add_argument("--warmup", type=float, default=3.0, help="seconds of signal used for the baseline")
    p.add_argument("--duration", type=float, default=180.0)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s[%(process)d] %(message)s")
    ctx = mp.get_context("fork")
    queues = [ctx.Queue(maxsize=16) for _ in range(args.lines)]
    alarms = ctx.Queue()
    procs = [ctx.Process(target=run_feed, args=(queues, args), name="feed", daemon=True)]
    procs += [ctx.Process(target=run_detector, args=(i, q, alarms, args), name=f"detector-{i}", daemon=True)
              for i, q in enumerate(queues)]
    for p in procs:
        p.start()
    signal.signal(signal.SIGTERM, lambda *a: sys.exit(0))

    deadline = time.monotonic() + args.duration
    while time.monotonic() < deadline:
        try:
            line, machine, score = alarms.get(timeout=1.0)
        except Exception:
            continue
        log.info("line %d machine %d: score %.2f", line, machine, score)


if __name__ == "__main__":
    main()
