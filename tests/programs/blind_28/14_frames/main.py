"""Video labelling server: frames in shared memory, runners as separate programs, recycled by age."""
import argparse
import logging
import os
import subprocess
import sys
import threading
import time

import numpy as np

from frames import FramePool

log = logging.getLogger("server")
HERE = os.path.dirname(os.path.abspath(__file__))


class RunnerSeat(threading.Thread):
    """Keeps one seat of the server filled with a runner and feeds it."""

    def __init__(self, index: int, pool: FramePool, slots: list[int], args):
        super().__init__(name=f"seat-{index}", daemon=True)
        self.index, self.pool, self.slots, self.args = index, pool, slots, args
        self.labelled = 0
        self.rng = np.random.default_rng(index)

    def launch(self):
        lifetime = self.args.lifetime * (1 + self.args.spread * self.index)
        command = [sys.executable, os.path.join(HERE, "runner.py"), "--pool", self.pool.name, "--lifetime", str(lifetime)]
        command += ["--slots", str(self.args.slots), "--size", str(self.args.size)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def serve(self, runner) -> int:
        if runner.stdout.readline().strip() == "ready":
            while True:
                slot = self.slots[self.labelled % len(self.slots)]
                self.pool.frames[slot] = self.rng.random(self.pool.frames.shape[1:], dtype=np.float32)
                runner.stdin.write(f"{slot}\n")
                runner.stdin.flush()
                answer = runner.stdout.readline().split()
                if not answer:
                    break
                self.labelled += 1
                if answer[-1] == "last":
                    break
                time.sleep(self.args.interval)
        return runner.wait()

    def run(self):
        while True:
            code = self.serve(self.launch())
            if code != 0:
                log.error("seat %d: runner exited with code %d, seat closed", self.index, code)
                return
            log.info("seat %d: runner recycled after %d frames", self.index, self.labelled)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runners", type=int, default=3)
    parser.add_argument("--slots", type=int, default=12)
    parser.add_argument("--size", type=int, default=160)
    parser.add_argument("--interval", type=float, default=0.03)
    parser.add_argument("--lifetime", type=float, default=4.0)
    parser.add_argument("--spread", type=float, default=40.0, help="how much longer the next seat keeps its runner")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s[%(process)d] %(message)s")
    pool = FramePool.create(args.slots, args.size)
    share = args.slots // args.runners
    seats = [RunnerSeat(i, pool, list(range(i * share, (i + 1) * share)), args) for i in range(args.runners)]
    try:
        for seat in seats:
            seat.start()
        while any(seat.is_alive() for seat in seats):
            time.sleep(5)
            log.info("frames labelled per seat: %s", [seat.labelled for seat in seats])
    finally:
        pool.close()


if __name__ == "__main__":
    main()
