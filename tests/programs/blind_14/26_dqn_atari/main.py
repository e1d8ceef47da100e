"""Off-policy learning from pixels: actors fill a replay memory, the learner samples from it."""
import argparse
import logging
import multiprocessing as mp
import multiprocessing.connection
import os
import time

START = time.monotonic()

import numpy as np
import torch
from torch import nn

from actor import act
from replay import ReplayBuffer


class QNet(nn.Module):
    def __init__(self, actions=3):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(21 * 21, 128), nn.ReLU(), nn.Linear(128, actions))

    def forward(self, x):
        return self.body(nn.functional.avg_pool2d(x[:, None], 4).flatten(1))


def rss_mb():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2 ** 20


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--actors", type=int, default=2)
    p.add_argument("--fps", type=float, default=220)
    p.add_argument("--buffer-size", type=int, default=20000)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--gamma", type=float, default=0.99)
    p.add_argument("--lr", type=float, default=2.5e-4)
    p.add_argument("--minutes", type=float, default=1.75)
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


def learn(net, target, opt, batch, gamma):
    s, a, r, s2, d = batch
    s, s2 = torch.from_numpy(s).float() / 255, torch.from_numpy(s2).float() / 255
    a, r, d = torch.from_numpy(a), torch.from_numpy(r), torch.from_numpy(d)
    with torch.no_grad():
        y = r + gamma * (1 - d) * target(s2).max(1).values
    q = net(s).gather(1, a[:, None]).squeeze(1)
    loss = nn.functional.smooth_l1_loss(q, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    stop, conns, actors = mp.Event(), [], []
    for i in range(args.actors):
        here, there = mp.Pipe(duplex=False)
        p = mp.Process(target=act, name=f"actor-{i}", daemon=True,
                       args=(i, there, stop, 0.3, args.fps, args.seed))
        p.start()
        there.close()
        conns.append(here)
        actors.append(p)
    memory = ReplayBuffer(args.buffer_size, args.batch_size, args.seed)
    net, target = QNet(), QNet()
    target.load_state_dict(net.state_dict())
    opt = torch.optim.Adam(net.parameters(), lr=args.lr)
    frames, updates, loss, last = 0, 0, float("nan"), time.monotonic()
    while time.monotonic() - START < args.minutes * 60:
        for conn in mp.connection.wait(conns, timeout=0.05):
            for transition in conn.recv():
                memory.add(*transition)
                frames += 1
        if len(memory) > 1000:
            loss = learn(net, target, opt, memory.sample(), args.gamma)
            updates += 1
            if updates % 500 == 0:
                target.load_state_dict(net.state_dict())
        if time.monotonic() - last > 5:
            last = time.monotonic()
            logging.info("frames %d updates %d loss %.4f memory %d/%d rss %.0f MB", frames, updates, loss,
                         len(memory), args.buffer_size, rss_mb())
    stop.set()
    for conn in conns:
        try:
            while conn.poll(5):
                conn.recv()
        except EOFError:
            pass
    for p in actors:
        p.join()
    logging.info("done after %d frames", frames)


if __name__ == "__main__":
    main()
