"""Learns a linear arm policy from synchronously collected steps."""
import argparse
import logging
import time

import numpy as np
import torch
from torch import nn

from collector import SyncCollector

log = logging.getLogger("arm")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--collectors", type=int, default=4)
    p.add_argument("--step-ms", type=float, default=10.0)
    p.add_argument("--random-frames", type=int, default=30, help="frames per batch while exploring")
    p.add_argument("--random-batches", type=int, default=12)
    p.add_argument("--frames", type=int, default=110, help="frames per batch afterwards")
    p.add_argument("--batches", type=int, default=400)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)

    collector = SyncCollector(args.collectors, args.step_ms / 1000)
    value = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 1))
    policy = torch.zeros(6, 6, requires_grad=True)
    opt_v = torch.optim.Adam(value.parameters(), lr=1e-3)
    opt_p = torch.optim.Adam([policy], lr=3e-3)
    for batch in range(args.batches):
        random = batch < args.random_batches
        t0 = time.time()
        rows = collector.gather(None if random else policy.detach().numpy(),
                                args.random_frames if random else args.frames)
        t1 = time.time()
        obs, act = (torch.from_numpy(np.stack([r[k] for r in rows])) for k in (0, 1))
        reward = torch.tensor([r[2] for r in rows])[:, None]
        for _ in range(10):
            loss = nn.functional.mse_loss(value(torch.cat([obs, act], 1)), reward)
            opt_v.zero_grad()
            loss.backward()
            opt_v.step()
        gain = value(torch.cat([obs, torch.tanh(obs @ policy.T)], 1)).mean()
        opt_p.zero_grad()
        (-gain).backward()
        opt_p.step()
        log.info("batch %d reward %.3f, %d frames, collect %.2f s, learn %.2f s, %.0f frames/s", batch,
                 reward.mean(), len(rows), t1 - t0, time.time() - t1, len(rows) / (time.time() - t0))
    collector.close()


if __name__ == "__main__":
    main()
