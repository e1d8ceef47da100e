"""Serve a manipulation policy to several robot cells and log how long an action takes."""
import argparse
import logging
import multiprocessing as mp
import os
import sys
import threading
import time

import numpy as np
import torch

from cells import RobotCell
from policy import ActionChunkPolicy
from transforms import build_pipeline

log = logging.getLogger("policy_server")


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--cells", type=int, default=4)
    p.add_argument("--state-dim", type=int, default=14)
    p.add_argument("--image", type=int, default=32)
    p.add_argument("--horizon", type=int, default=16)
    p.add_argument("--control-hz", type=float, default=50.0)
    p.add_argument("--report-every", type=float, default=5.0)
    p.add_argument("--shift", type=float, default=125.0, help="seconds of the test shift")
    return p.parse_args()


class Stats:
    def __init__(self):
        self.reset()

    def reset(self):
        self.since = time.monotonic()
        self.requests = 0
        self.stage = {"input": 0.0, "model": 0.0, "output": 0.0}

    def line(self):
        wall = time.monotonic() - self.since
        n = max(self.requests, 1)
        stages = " ".join(f"{k} {1e3 * v / n:.1f} ms" for k, v in self.stage.items())
        return f"{self.requests / wall:.1f} actions/s, per action: {stages}"


class PolicyServer(mp.Process):
    def __init__(self, connections, args):
        super().__init__(name="policy-server")
        self.connections = connections
        self.args = args

    def setup(self):
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.policy = ActionChunkPolicy(self.args.state_dim, self.args.image, self.args.horizon).eval()
        self.inputs, self.outputs = build_pipeline(self.args.state_dim, self.args.image)

    @torch.inference_mode()
    def infer(self, observation, stats):
        t0 = time.perf_counter()
        for transform in self.inputs:
            observation = transform(observation)
        t1 = time.perf_counter()
        batch = {k: torch.from_numpy(np.ascontiguousarray(v))[None] for k, v in observation.items()}
        actions = self.policy(batch["image"], batch["state"])[0].numpy()
        t2 = time.perf_counter()
        result = {"actions": actions, "state": observation["state"]}
        for transform in self.outputs:
            result = transform(result)
        t3 = time.perf_counter()
        for name, dt in zip(("input", "model", "output"), (t1 - t0, t2 - t1, t3 - t2)):
            stats.stage[name] += dt
        stats.requests += 1
        return result["actions"]

    def run(self):
        logging.basicConfig(level=logging.INFO, stream=sys.stdout,
                            format="%(asctime)s %(processName)s %(levelname)s %(message)s")
        self.setup()
        stats = Stats()
        log.info("serving %d cells", len(self.connections))
        while self.connections:
            for conn in mp.connection.wait(self.connections, timeout=1.0):
                try:
                    observation = conn.recv()
                except EOFError:
                    self.connections.remove(conn)
                    continue
                conn.send(self.infer(observation, stats))
            if time.monotonic() - stats.since > self.args.report_every:
                log.info(stats.line())
                stats.reset()


def shift_end(seconds):
    time.sleep(seconds + 15)
    os._exit(0)


def main():
    args = parse_args()
    threading.Thread(target=shift_end, args=(args.shift,), daemon=True).start()
    pairs = [mp.Pipe() for _ in range(args.cells)]
    server = PolicyServer([server_end for server_end, _ in pairs], args)
    server.start()
    cells = [RobotCell(i, cell_end, args) for i, (_, cell_end) in enumerate(pairs)]
    for cell in cells:
        cell.start()
    for server_end, cell_end in pairs:
        server_end.close()
        cell_end.close()
    for cell in cells:
        cell.join()
    server.join()


if __name__ == "__main__":
    main()
