"""Collect frames with the async pool and fit a small value net on them."""
import argparse
import functools
import logging
import random

import torch
from torch import nn

from async_pool import AsyncEnvPool, PixelEnv

log = logging.getLogger("collect")


class ValueNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 8, 8, 4), nn.ReLU(), nn.Conv2d(8, 8, 4, 2), nn.ReLU(),
                                 nn.Flatten(), nn.LazyLinear(1))

    def forward(self, x):
        return self.net(x.float() / 255.0)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--num-envs", type=int, default=5)
    ap.add_argument("--total-frames", type=int, default=700)
    ap.add_argument("--min-get", type=int, default=2)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)

    pool = AsyncEnvPool([functools.partial(PixelEnv, s) for s in range(args.num_envs)])
    net = ValueNet()
    net(torch.zeros(1, 3, 210, 160, dtype=torch.uint8))
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)

    pool.async_reset_send()
    frames = 0
    while frames < args.total_frames:
        batch = pool.recv(args.min_get)
        obs = torch.stack([torch.frombuffer(bytearray(b[1]), dtype=torch.uint8).view(3, 210, 160) for b in batch])
        rew = torch.tensor([[b[2]] for b in batch])
        loss = nn.functional.mse_loss(net(obs), rew)
        opt.zero_grad()
        loss.backward()
        opt.step()
        pool.async_step_send({b[0]: random.randint(0, 3) for b in batch})
        frames += len(batch)
        if frames % 50 < len(batch):
            log.info("frames %d loss %.4f", frames, loss.item())
    pool.shutdown()
    torch.save(net.state_dict(), "/tmp/value_net.pt")
    log.info("done")


if __name__ == "__main__":
    main()
