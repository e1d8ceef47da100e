import argparse
import logging
import random
import sys
import time
from collections import deque

import torch
import torch.multiprocessing as mp

from collector import collect_loop, q_network

log = logging.getLogger("dqn")


def parse_args():
    ap = argparse.ArgumentParser(description="DQN for lane changes, simulation on the CPU")
    ap.add_argument("--device", default="cuda:0")
    ap.add_argument("--collectors", type=int, default=2)
    ap.add_argument("--steps-per-round", type=int, default=1600)
    ap.add_argument("--updates-per-round", type=int, default=40)
    ap.add_argument("--batch-size", type=int, default=512)
    ap.add_argument("--gamma", type=float, default=0.97)
    ap.add_argument("--seconds", type=float, default=100.0)
    return ap.parse_args()


class DQN:
    def __init__(self, args):
        self.args, self.device = args, args.device
        self.net, self.target = q_network().to(args.device), q_network().to(args.device)
        self.target.load_state_dict(self.net.state_dict())
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=5e-4)
        self.memory = deque(maxlen=20000)

    def state(self):
        return {k: v.cpu() for k, v in self.net.state_dict().items()}

    def update(self):
        rows = random.sample(self.memory, min(self.args.batch_size, len(self.memory)))
        obs, actions, rewards, following, done = (torch.tensor(c).to(self.device) for c in zip(*rows))
        with torch.no_grad():
            goal = rewards + self.args.gamma * (1 - done) * self.target(following).max(dim=1).values
        q = self.net(obs).gather(1, actions.unsqueeze(1)).squeeze(1)
        loss = torch.nn.functional.smooth_l1_loss(q, goal)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss

    def train_round(self):
        total = sum(self.update().detach() for _ in range(self.args.updates_per_round))
        self.target.load_state_dict(self.net.state_dict())
        return float(total) / self.args.updates_per_round


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(message)s")
    torch.manual_seed(0)
    ctx = mp.get_context("spawn")
    pipes, processes = [], []
    for seed in range(args.collectors):
        ours, theirs = ctx.Pipe()
        processes.append(ctx.Process(target=collect_loop, args=(seed, theirs), daemon=True))
        processes[-1].start()
        pipes.append(ours)
    dqn, started, rounds = DQN(args), time.time(), 0
    while time.time() - started < args.seconds:
        epsilon, collected = max(0.1, 1.0 - rounds / 15), time.time()
        state = dqn.state()
        for pipe in pipes:
            pipe.send((state, epsilon, args.steps_per_round))
        transitions = [t for pipe in pipes for t in pipe.recv()]
        dqn.memory.extend(transitions)
        trained = time.time()
        loss = dqn.train_round()
        rounds += 1
        log.info(
            "round %d: %d transitions in %.1fs, %d updates in %.1fs, loss %.4f, mean reward %.3f",
            rounds, len(transitions), trained - collected, args.updates_per_round, time.time() - trained, loss,
            sum(t[2] for t in transitions) / len(transitions),
        )
    for pipe in pipes:
        pipe.send(None)
    for p in processes:
        p.join()
    torch.save(dqn.state(), "dqn.pt")


if __name__ == "__main__":
    main()
