"""Distributed replay: actors fill the remote memory, the trainer learns from it."""
import argparse
import collections
import logging
import multiprocessing as mp
import random
import time

import torch
from torch import nn

from actors import actor

log = logging.getLogger("play_mp")


class RecurrentQ(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(1600, 64)
        self.lstm = nn.LSTM(64, 64, batch_first=True)
        self.q = nn.Linear(64, 6)

    def forward(self, s):
        return self.q(self.lstm(torch.relu(self.enc(s)))[0])


class Memory:
    """Bounded replay memory of the trainer process."""

    def __init__(self, capacity):
        self.buf = collections.deque(maxlen=capacity)

    def add(self, b):
        self.buf.append(b)

    def sample(self, n):
        return random.sample(self.buf, n)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--actors", type=int, default=3)
    ap.add_argument("--capacity", type=int, default=40)
    ap.add_argument("--train-batches", type=int, default=3000)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    remote_memory, params, stop = mp.Queue(), mp.Value("i", 0), mp.Event()
    procs = [mp.Process(target=actor, args=(i, remote_memory, params, stop), name=f"actor-{i}", daemon=True)
             for i in range(args.actors)]
    for p in procs:
        p.start()

    memory, net = Memory(args.capacity), RecurrentQ()
    opt = torch.optim.Adam(net.parameters(), lr=1e-4)
    for it in range(args.train_batches):
        memory.add(remote_memory.get())
        if len(memory.buf) < 4:
            continue
        batch = memory.sample(4)
        s = torch.stack([torch.frombuffer(bytearray(b["states"]), dtype=torch.uint8).view(120, 1600) for b in batch])
        q = net(s.float() / 255)[:, 40:]
        a = torch.tensor([b["actions"] for b in batch]).unsqueeze(-1)
        loss = (q.gather(-1, a).squeeze(-1) - torch.tensor([b["rewards"] for b in batch])).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.1)
        params.value = it
        if it % 25 == 0:
            log.info("train %d loss %.3f memory %d", it, loss.item(), len(memory.buf))
    stop.set()


if __name__ == "__main__":
    main()
