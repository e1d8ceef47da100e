import logging
import signal
import threading
import time
from pathlib import Path

import torch
from torch import nn

log = logging.getLogger("trainer")


class Trainer:
    def __init__(self, name, out, args):
        self.name, self.out, self.args = name, Path(out), args
        torch.manual_seed(hash(name) % 1000)
        self.model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))
        self.step = 0
        self.loss = float("nan")
        self._state_lock = threading.Lock()
        signal.signal(signal.SIGUSR1, self._on_notice)
        threading.Thread(target=self._export_metrics, daemon=True, name="metrics").start()

    def _on_notice(self, signum, frame):
        log.info("preemption notice at step %d", self.step)
        self.save("preempt")

    def _export_metrics(self):
        while True:
            with self._state_lock:
                row = f"{self.step},{self.loss:.5f}\n"
            with open(self.out / f"{self.name}.csv", "a") as f:
                f.write(row)
            time.sleep(1)

    def save(self, tag):
        with self._state_lock:
            torch.save({"step": self.step, "model": self.model.state_dict()}, self.out / f"{self.name}_{tag}.pt")
        log.info("wrote %s_%s.pt", self.name, tag)

    def train_step(self):
        with self._state_lock:
            for _ in range(self.args.accumulate):
                x = torch.randn(128, 32)
                loss = (self.model(x) - x.mean(1, keepdim=True)).pow(2).mean() / self.args.accumulate
                loss.backward()
                time.sleep(0.01)
            with torch.no_grad():
                for p in self.model.parameters():
                    p -= 0.05 * p.grad
                    p.grad = None
            self.loss = loss.item() * self.args.accumulate
            self.step += 1

    def fit(self):
        while self.step < self.args.steps:
            self.train_step()
            if self.step % 10 == 0:
                log.info("step %d loss %.4f", self.step, self.loss)
            if self.step % 50 == 0:
                self.save("last")


def train_job(name, out, args):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {name} %(message)s")
    torch.set_num_threads(1)
    Trainer(name, out, args).fit()
