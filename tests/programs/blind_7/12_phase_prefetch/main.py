"""Series classifier trained in phases of growing length; stops cleanly when preempted."""
import argparse
import logging
import signal
import time
from pathlib import Path

import torch
from torch import nn

from workers import Producers

log = logging.getLogger("phases")


class Trainer:
    def __init__(self, args):
        self.args = args
        self.model = nn.Sequential(
            nn.Conv1d(1, 16, 7, padding=3), nn.ReLU(), nn.AvgPool1d(2),
            nn.Conv1d(16, 32, 5, padding=2), nn.ReLU(), nn.AdaptiveAvgPool1d(1),
            nn.Flatten(), nn.Linear(32, 2),
        )
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.step = 0
        self.stop = False
        # The cluster sends SIGTERM two minutes before it takes the node.
        signal.signal(signal.SIGTERM, self._preempted)

    def _preempted(self, signum, frame):
        self.stop = True

    def save(self):
        self.args.out.mkdir(parents=True, exist_ok=True)
        torch.save({"step": self.step, "model": self.model.state_dict()}, self.args.out / "last.pt")

    def run_phase(self, size, seconds):
        log.info("phase with length %d", size)
        producers = Producers(self.args.producers, size, self.args.batch_size)
        t_end = time.monotonic() + seconds
        while time.monotonic() < t_end and not self.stop:
            x, y = producers.get()
            loss = nn.functional.cross_entropy(self.model(torch.from_numpy(x)[:, None]), torch.from_numpy(y))
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.step += 1
            if self.step % 25 == 0:
                log.info("step %d loss %.3f", self.step, loss.item())
        producers.stop()
        self.save()

    def run(self):
        for size in self.args.sizes:
            self.run_phase(size, self.args.phase_seconds)
            if self.stop:
                log.info("preempted at step %d", self.step)
                break


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--sizes", type=int, nargs="+", default=[256, 512, 1024, 2048])
    p.add_argument("--phase-seconds", type=float, default=6.0)
    p.add_argument("--producers", type=int, default=3)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--out", type=Path, default=Path("runs"))
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    Trainer(args).run()


if __name__ == "__main__":
    main()
