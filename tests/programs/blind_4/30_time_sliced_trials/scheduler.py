"""Time-sliced hyper-parameter trials: all of them are started, only `--slots` run at any moment."""
import argparse
import atexit
import logging
import pathlib
import signal
import subprocess
import sys
import time
from collections import deque

log = logging.getLogger("scheduler")


class Trial:
    def __init__(self, name, lr):
        self.name = name
        script = pathlib.Path(__file__).with_name("trial.py")
        self.proc = subprocess.Popen([sys.executable, str(script), "--name", name, "--lr", str(lr)])
        self.proc.send_signal(signal.SIGSTOP)

    def resume(self):
        self.proc.send_signal(signal.SIGCONT)

    def suspend(self):
        if self.proc.poll() is None:
            self.proc.send_signal(signal.SIGSTOP)

    @property
    def finished(self):
        return self.proc.poll() is not None


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--slots", type=int, default=2)
    p.add_argument("--slice", type=float, default=12.0, help="seconds")
    p.add_argument("--lr", type=float, nargs="+", default=[0.1, 0.03, 0.01, 0.003])
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    trials = [Trial(f"lr={lr}", lr) for lr in args.lr]
    atexit.register(lambda: [t.proc.kill() for t in trials if not t.finished])
    waiting = deque(trials)
    while waiting:
        running = [waiting.popleft() for _ in range(min(args.slots, len(waiting)))]
        for t in running:
            t.resume()
        log.info("running %s, %d suspended", [t.name for t in running], len(waiting))
        until = time.monotonic() + args.slice
        while time.monotonic() < until and not all(t.finished for t in running):
            time.sleep(0.2)
        for t in running:
            t.suspend()
            if not t.finished:
                waiting.append(t)
    log.info("all trials finished: %s", {t.name: t.proc.returncode for t in trials})


if __name__ == "__main__":
    main()
