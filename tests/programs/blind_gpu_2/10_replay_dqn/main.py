"""Distributed DQN: two actors fill a replay memory, one learner on the GPU."""
import argparse
import logging
import os
import queue
import time

import torch
import torch.multiprocessing as mp

from actor import QNet, actor_main, device
from replay import EpisodeReplay

log = logging.getLogger("learner")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--actors", type=int, default=2)
    p.add_argument("--segment", type=int, default=64)
    p.add_argument("--capacity", type=int, default=320, help="segments kept in the replay memory")
    p.add_argument("--min-replay", type=int, default=40)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--publish-every", type=int, default=200)
    p.add_argument("--walltime", type=float, default=125.0)
    return p.parse_args()


class Learner:
    def __init__(self, args, segments, weights):
        self.args, self.segments, self.weights = args, segments, weights
        self.replay = EpisodeReplay(args.capacity)
        self.net, self.target = QNet().to(device), QNet().to(device)
        self.target.load_state_dict(self.net.state_dict())
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-4)
        self.updates = 0

    def ingest(self, block):
        try:
            self.replay.add(self.segments.get(timeout=1.0) if block else self.segments.get_nowait())
            return True
        except queue.Empty:
            return False

    def update(self):
        frames, nxt, actions, rewards = (t.to(device) for t in self.replay.sample(self.args.batch_size))
        with torch.no_grad():
            goal = rewards + 0.99 * self.target(nxt).max(-1).values
        q = self.net(frames).gather(1, actions.unsqueeze(1)).squeeze(1)
        loss = torch.nn.functional.smooth_l1_loss(q, goal)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.updates += 1
        return loss

    def publish(self):
        state = {k: v.cpu().numpy() for k, v in self.net.state_dict().items()}
        for q in self.weights:
            try:
                q.put_nowait((self.updates, state))
            except queue.Full:
                pass
        self.target.load_state_dict(self.net.state_dict())

    def run(self, until):
        while len(self.replay) < self.args.min_replay:
            self.ingest(block=True)
        log.info("replay warm with %d segments", len(self.replay))
        tick = time.monotonic()
        while time.monotonic() < until:
            while self.ingest(block=False):
                pass
            loss = self.update()
            if self.updates % self.args.publish_every == 0:
                self.publish()
            if time.monotonic() - tick > 5:
                tick = time.monotonic()
                log.info("updates %d loss %.5f segments %d of %d (%.0f MB), %d inserted", self.updates,
                         loss.item(), len(self.replay), self.args.capacity,
                         self.replay.nbytes() / 1e6, self.replay.inserted)


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    until = time.monotonic() + args.walltime
    ctx = mp.get_context("spawn")
    segments = ctx.Queue(maxsize=8)
    weights = [ctx.Queue(maxsize=1) for _ in range(args.actors)]
    cfg = {"segment": args.segment, "walltime": args.walltime}
    actors = [ctx.Process(target=actor_main, args=(i, segments, weights[i], cfg), daemon=True)
              for i in range(args.actors)]
    for a in actors:
        a.start()
    Learner(args, segments, weights).run(until)
    for a in actors:
        a.terminate()
    os._exit(0)


if __name__ == "__main__":
    main()
