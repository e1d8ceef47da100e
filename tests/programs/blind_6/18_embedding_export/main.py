"""Score agents with a trajectory model and keep what is needed for the report."""
import argparse
import logging
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from agents import AgentHistories

log = logging.getLogger("export")


class Report:
    def __init__(self):
        self.histories, self.scores = [], []

    def add(self, batch, score):
        self.histories.append(batch["history"].numpy())
        self.scores.append(score.numpy())

    def summary(self):
        score = np.concatenate(self.scores)
        spread = np.mean([h[:, -1].std() for h in self.histories[-20:]])
        return f"{len(score)} agents, mean score {score.mean():.4f}, spread {spread:.2f}"


class TrajectoryNet(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv1d(channels, 32, 5, stride=2)
        self.head = nn.Linear(32, 1)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x.transpose(1, 2))).mean(2)).squeeze(1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--agents", type=int, default=400000)
    ap.add_argument("--batch-size", type=int, default=64)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--rate", type=float, default=7.5, help="batches per second at most")
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    data = AgentHistories(args.agents)
    loader = DataLoader(
        data, batch_size=args.batch_size, num_workers=args.workers, multiprocessing_context="fork"
    )
    net, report = TrajectoryNet(data.channels).eval(), Report()
    with torch.inference_mode():
        for step, batch in enumerate(loader, 1):
            t0 = time.perf_counter()
            report.add(batch, net(batch["history"]))
            if step % 50 == 0:
                log.info("batch %d: %s", step, report.summary())
            time.sleep(max(0.0, 1 / args.rate - (time.perf_counter() - t0)))


if __name__ == "__main__":
    main()
