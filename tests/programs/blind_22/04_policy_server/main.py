"""Actor-learner loop with an out-of-process policy server and a stats monitor."""
import argparse
import logging
import multiprocessing as mp
import os
import threading
import time

import numpy as np
import torch

from actors import start_actors
from server import Policy, ProcessInferenceServer

log = logging.getLogger("learner")


class StatsMonitor(threading.Thread):
    """Polls the server and logs its throughput."""

    def __init__(self, server, interval):
        super().__init__(name="stats-monitor", daemon=True)
        self.server = server
        self.interval = interval
        self.polls = 0

    def run(self):
        last, last_t = 0, time.monotonic()
        while True:
            time.sleep(self.interval)
            stats = self.server.stats()
            self.polls += 1
            if self.polls % 20 == 0:
                now = time.monotonic()
                log.info("server v%d: %.0f requests/s", stats["version"],
                         (stats["served"] - last) / (now - last_t))
                last, last_t = stats["served"], now


class Learner:
    def __init__(self, obs_dim, act_dim):
        self.policy = Policy(obs_dim, act_dim)
        self.optim = torch.optim.Adam(self.policy.parameters(), lr=1e-3)

    def update(self, steps):
        obs = torch.from_numpy(np.stack([s[0] for s in steps]))
        act = torch.tensor([s[1] for s in steps])
        rew = torch.tensor([s[2] for s in steps])
        logp = torch.log_softmax(self.policy(obs), -1).gather(1, act[:, None]).squeeze(1)
        loss = -(logp * (rew - rew.mean())).mean()
        self.optim.zero_grad()
        loss.backward()
        self.optim.step()
        return loss.item(), rew.mean().item()

    def weights(self):
        return {k: v.numpy() for k, v in self.policy.state_dict().items()}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--actors", type=int, default=3)
    p.add_argument("--obs-dim", type=int, default=8)
    p.add_argument("--act-dim", type=int, default=4)
    p.add_argument("--rollout", type=int, default=32)
    p.add_argument("--iterations", type=int, default=200_000)
    p.add_argument("--monitor-interval", type=float, default=0.05)
    p.add_argument("--max-seconds", type=float, default=130)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)

    server = ProcessInferenceServer(args.obs_dim, args.act_dim, args.actors)
    rollouts = mp.get_context("fork").Queue(maxsize=2 * args.actors)
    server.start()
    start_actors(server.clients, rollouts, args.obs_dim, args.rollout)
    deadline = threading.Timer(args.max_seconds, os._exit, args=(0,))
    deadline.daemon = True
    deadline.start()
    StatsMonitor(server, args.monitor_interval).start()

    learner = Learner(args.obs_dim, args.act_dim)
    for iteration in range(args.iterations):
        _, steps = rollouts.get()
        loss, reward = learner.update(steps)
        version = server.update_weights(learner.weights())
        if iteration % 50 == 0:
            log.info("iteration %d loss %+.4f reward %.3f policy v%d", iteration, loss, reward, version)
    server.shutdown()


if __name__ == "__main__":
    main()
