import argparse
import logging
import multiprocessing as mp
import random
import time

import torch
from torch import nn

from buffers import ReplayBuffer

log = logging.getLogger("dqn")


def env_process(idx, pipe):
    rng = random.Random(idx)
    while True:
        a = pipe.recv()
        time.sleep(0.002)
        pipe.send((rng.randbytes(4 * 84 * 84), float(a == 2)))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--envs", type=int, default=3)
    ap.add_argument("--capacity", type=int, default=9000)
    ap.add_argument("--steps", type=int, default=200_000)
    ap.add_argument("--train-every", type=int, default=24)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    pipes = []
    for i in range(args.envs):
        a, b = mp.Pipe()
        mp.Process(target=env_process, args=(i, b), name=f"env-{i}", daemon=True).start()
        pipes.append(a)
    net = nn.Sequential(nn.Conv2d(4, 8, 8, 8), nn.ReLU(), nn.Flatten(), nn.Linear(800, 4))
    opt = torch.optim.Adam(net.parameters(), lr=1e-4)
    buf = ReplayBuffer(args.capacity, (4, 84, 84))
    t0 = time.time()
    for step in range(args.steps):
        acts = [random.randrange(4) for _ in pipes]
        for p, a in zip(pipes, acts):
            p.send(a)
        for p, a in zip(pipes, acts):
            frame, r = p.recv()
            buf.add(torch.frombuffer(bytearray(frame), dtype=torch.uint8).view(4, 84, 84), a, r)
        if step % args.train_every == 0 and len(buf) > 200:
            o, a, r = buf.sample(32)
            loss = (net(o.float() / 255).gather(1, a[:, None])[:, 0] - r).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        if step % 300 == 0:
            log.info("step %d buffer %d/%d %.0f steps/s", step, len(buf), buf.capacity, step / (time.time() - t0))


if __name__ == "__main__":
    main()
