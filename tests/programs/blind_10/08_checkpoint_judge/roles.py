import logging
import os
import time
from pathlib import Path

import torch
from torch import nn

log = logging.getLogger("judge")


def setup():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)


def build_model():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 3))


class Trainer:
    def __init__(self, directory, every, checkpoints):
        self.directory = Path(directory)
        self.every = every
        self.checkpoints = checkpoints
        gen = torch.Generator().manual_seed(0)
        self.x = torch.randn(600, 16, generator=gen)
        self.y = self.x[:, :3].argmax(1)

    def run(self, heartbeat):
        model, number = build_model(), 0
        optim = torch.optim.SGD(model.parameters(), lr=0.05)
        next_save = time.monotonic() + self.every
        while number < self.checkpoints:
            for xb, yb in zip(self.x.split(60), self.y.split(60)):
                loss = nn.functional.cross_entropy(model(xb), yb)
                optim.zero_grad()
                loss.backward()
                optim.step()
                heartbeat.value = time.time()
                time.sleep(0.08)
            if time.monotonic() >= next_save:
                number += 1
                next_save += self.every
                partial = self.directory / "partial.tmp"
                torch.save(model.state_dict(), partial)
                os.replace(partial, self.directory / f"step_{number:04d}.pt")
                log.info("checkpoint %d, loss %.3f", number, loss.item())


class Judge:
    """Scores every new checkpoint once."""

    def __init__(self, directory, poll):
        self.directory = Path(directory)
        self.poll = poll
        self.seen = set()

    def wait_for_new(self, finished):
        while not finished.is_set():
            fresh = [p for p in sorted(self.directory.glob("step_*.pt")) if p.name not in self.seen]
            if fresh:
                return fresh[-1]
            log.info("no new checkpoint, looking again in %.0fs", self.poll)
            finished.wait(self.poll)
        return None

    def run(self, finished):
        x = torch.randn(500, 16)
        y = x[:, :3].argmax(1)
        while (path := self.wait_for_new(finished)) is not None:
            self.seen.add(path.name)
            model = build_model()
            model.load_state_dict(torch.load(path))
            with torch.no_grad():
                accuracy = (model(x).argmax(1) == y).float().mean().item()
            log.info("%s accuracy %.3f", path.name, accuracy)


class Standby:
    """Takes over when the trainer has been silent for too long."""

    def __init__(self, limit):
        self.limit = limit

    def run(self, heartbeat, finished):
        log.info("standing by")
        while not finished.wait(self.limit / 2):
            if time.time() - heartbeat.value > self.limit:
                log.error("trainer silent for %.0fs, taking over", self.limit)
                return


def trainer_main(directory, every, checkpoints, heartbeat):
    setup()
    Trainer(directory, every, checkpoints).run(heartbeat)


def judge_main(directory, poll, finished):
    setup()
    Judge(directory, poll).run(finished)


def standby_main(limit, heartbeat, finished):
    setup()
    Standby(limit).run(heartbeat, finished)
