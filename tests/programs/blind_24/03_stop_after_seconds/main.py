"""Runs the tuning benchmark for a list of configurations, one after the other."""
import argparse
import logging
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
log = logging.getLogger("bench")

CONFIGS = [
    {"batch-size": 32, "width": 64},
    {"batch-size": 64, "width": 64},
    {"batch-size": 64, "width": 128},
]


def pick_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Measurement:
    def __init__(self, config, ranks):
        self.config, self.ranks = config, ranks
        self.procs = []

    def start(self):
        env = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(pick_port()),
                   WORLD_SIZE=str(self.ranks), OMP_NUM_THREADS="1")
        flags = [f"--{k}={v}" for k, v in self.config.items()]
        for r in range(self.ranks):
            self.procs.append(subprocess.Popen(
                [sys.executable, str(HERE / "sft.py"), *flags],
                env=dict(env, RANK=str(r), LOCAL_RANK=str(r))))

    def wait(self, until):
        while time.monotonic() < until:
            codes = [p.poll() for p in self.procs]
            if all(c is not None for c in codes):
                return codes
            time.sleep(0.25)
        return None

    def kill(self):
        for p in self.procs:
            if p.poll() is None:
                p.kill()
            p.wait()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--ranks", type=int, default=3)
    ap.add_argument("--session-seconds", type=float, default=135)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [bench] %(message)s")
    until = time.monotonic() + args.session_seconds
    for config in CONFIGS:
        log.info("measuring %s", config)
        m = Measurement(config, args.ranks)
        m.start()
        try:
            codes = m.wait(until)
        finally:
            m.kill()
        if codes is None:
            log.info("session over")
            return
        log.info("exit codes %s", codes)


if __name__ == "__main__":
    main()
