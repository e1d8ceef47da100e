import logging
import multiprocessing as mp
import sys
import time

import numpy as np

log = logging.getLogger("cell")


class RobotCell(mp.Process):
    """A simulated cell: asks for an action chunk, plays a part of it, asks again."""

    def __init__(self, index, conn, args):
        super().__init__(name=f"cell-{index}")
        self.index = index
        self.conn = conn
        self.dim = args.state_dim
        self.period = 1.0 / args.control_hz
        self.shift = args.shift

    def observe(self, rng, state):
        image = rng.integers(0, 256, (120, 160, 3), dtype=np.uint8)
        return {"image": image, "state": state.astype(np.float32)}

    def run(self):
        logging.basicConfig(level=logging.INFO, stream=sys.stdout,
                            format="%(asctime)s %(processName)s %(levelname)s %(message)s")
        rng = np.random.default_rng(self.index)
        state = rng.normal(0, 0.3, self.dim)
        late = steps = 0
        begin = report = time.monotonic()
        while time.monotonic() - begin < self.shift:
            asked = time.monotonic()
            try:
                self.conn.send(self.observe(rng, state))
                actions = self.conn.recv()
            except (EOFError, BrokenPipeError):
                break
            waited = time.monotonic() - asked
            state = 0.9 * state + 0.1 * actions[0]
            steps += 1
            late += waited > self.period
            if waited < self.period:
                time.sleep(self.period - waited)
            if time.monotonic() - report > 10:
                log.info("%d actions, %d too late for the control period of %.0f ms", steps, late, 1e3 * self.period)
                report = time.monotonic()
