import argparse
import copy
import logging
import multiprocessing as mp
import time

import torch
from torch.nn.utils import parameters_to_vector

from actor import QNetwork, run_actor
from replay import run_replay

log = logging.getLogger("learner")


class Learner:
    def __init__(self, args, replay, weights):
        self.args, self.replay, self.weights = args, replay, weights
        torch.manual_seed(args.seed)
        self.net = QNetwork()
        self.target = copy.deepcopy(self.net)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.steps = 0

    def publish(self):
        flat = parameters_to_vector(self.net.parameters()).detach()
        with self.weights.get_lock():
            torch.frombuffer(self.weights.get_obj(), dtype=torch.float32).copy_(flat)

    def step(self):
        self.replay.send(("sample", self.args.batch_size))
        indices, weights, (s, a, r, s2, done), size = self.replay.recv()
        with torch.no_grad():
            best = self.net(s2).argmax(-1, keepdim=True)
            goal = r + self.args.gamma * (1 - done) * self.target(s2).gather(1, best).squeeze(1)
        error = self.net(s).gather(1, a[:, None]).squeeze(1) - goal
        loss = (weights * error.pow(2)).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.replay.send(("update", (indices, error.detach().tolist())))
        self.steps += 1
        if self.steps % 100 == 0:
            self.target.load_state_dict(self.net.state_dict())
        if self.steps % 20 == 0:
            self.publish()
        return loss.item(), size


def parse_args():
    p = argparse.ArgumentParser(description="distributed prioritized replay")
    p.add_argument("--actors", type=int, default=2)
    p.add_argument("--envs-per-actor", type=int, default=10)
    p.add_argument("--actor-rate", type=float, default=1500.0, help="transitions per second and actor")
    p.add_argument("--chunk", type=int, default=100)
    p.add_argument("--capacity", type=int, default=200000)
    p.add_argument("--warmup", type=int, default=3000)
    p.add_argument("--batch-size", type=int, default=128)
    p.add_argument("--gamma", type=float, default=0.97)
    p.add_argument("--log-every", type=float, default=5.0)
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    ctx = mp.get_context("fork")
    size = parameters_to_vector(QNetwork().parameters()).numel()
    weights = ctx.Array("f", size)
    experience = ctx.Queue(maxsize=200)
    here, there = ctx.Pipe()
    ctx.Process(target=run_replay, args=(args, experience, there), name="replay", daemon=True).start()
    for i in range(args.actors):
        ctx.Process(target=run_actor, args=(i, args, experience, weights), name=f"actor-{i}", daemon=True).start()
    learner = Learner(args, here, weights)
    learner.publish()
    here.recv()
    last, last_steps = time.monotonic(), 0
    while True:
        loss, stored = learner.step()
        now = time.monotonic()
        if now - last >= args.log_every:
            log.info("learner step %d (%.1f steps/s), loss %.4f, memory %d", learner.steps,
                     (learner.steps - last_steps) / (now - last), loss, stored)
            last, last_steps = now, learner.steps


if __name__ == "__main__":
    main()
