"""Two actors write frames into a shared ring, the learner samples from what is there."""
import argparse
import logging
import time

import torch
import torch.multiprocessing as mp
from torch import nn

log = logging.getLogger("ring")


class FrameRing:
    """Frames of several actors in one block of shared memory; the oldest are overwritten."""

    def __init__(self, actors, slots, side):
        self.frames = torch.empty(actors, slots, 3, side, side, dtype=torch.uint8).share_memory_()
        self.rewards = torch.zeros(actors, slots).share_memory_()
        self.count = torch.zeros(actors, dtype=torch.long).share_memory_()
        self.slots = slots

    def write(self, actor, frame, reward):
        k = int(self.count[actor]) % self.slots
        self.frames[actor, k] = frame
        self.rewards[actor, k] = reward
        self.count[actor] += 1

    def sample(self, n, gen):
        filled = self.count.clamp(max=self.slots)
        a = torch.randint(len(filled), (n,), generator=gen)
        k = (torch.rand(n, generator=gen) * filled[a]).long()
        return self.frames[a, k].float() / 255, self.rewards[a, k]

    def size(self):
        return int(self.count.clamp(max=self.slots).sum())


def actor(idx, ring, fps, side, stop):
    torch.set_num_threads(1)
    gen = torch.Generator().manual_seed(idx)
    while not stop.is_set():
        frame = torch.randint(0, 256, (3, side, side), generator=gen, dtype=torch.uint8)
        ring.write(idx, frame, float(frame[0].float().mean() / 255))
        time.sleep(1.0 / fps)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--actors", type=int, default=2)
    p.add_argument("--slots", type=int, default=1500)
    p.add_argument("--side", type=int, default=224)
    p.add_argument("--fps", type=float, default=45)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--seconds", type=float, default=110)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)

    ring = FrameRing(args.actors, args.slots, args.side)
    stop = mp.Event()
    procs = [mp.Process(target=actor, args=(i, ring, args.fps, args.side, stop), name=f"actor-{i}")
             for i in range(args.actors)]
    for proc in procs:
        proc.start()
    while ring.size() < 64:
        time.sleep(0.1)
    net = nn.Sequential(nn.Conv2d(3, 8, 7, 4), nn.ReLU(), nn.Conv2d(8, 16, 5, 4), nn.ReLU(),
                        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 1))
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    gen = torch.Generator().manual_seed(9)
    t_end, step = time.monotonic() + args.seconds, 0
    while time.monotonic() < t_end:
        x, r = ring.sample(args.batch_size, gen)
        loss = nn.functional.mse_loss(net(x)[:, 0], r)
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        if step % 50 == 0:
            log.info("step %d loss %.4f, ring %d of %d", step, loss.item(), ring.size(), args.actors * args.slots)
    stop.set()
    for proc in procs:
        proc.join()


if __name__ == "__main__":
    main()
