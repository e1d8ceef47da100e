"""Policy gradient on drones that are simulated in real time."""
import argparse
import collections
import logging
import multiprocessing as mp
import signal
import time
from multiprocessing.connection import wait

import numpy as np
import torch
from torch import nn

from simulator import run_vehicle

log = logging.getLogger("learner")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--vehicles", type=int, default=3)
    p.add_argument("--control-step", type=float, default=0.1, help="seconds of simulated time")
    p.add_argument("--clock-speed", type=float, default=1.0,
                   help="1.0 is real time, as needed by the hardware-in-the-loop autopilot")
    p.add_argument("--episodes-per-update", type=int, default=3)
    p.add_argument("--gamma", type=float, default=0.97)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--updates", type=int, default=100_000)
    p.add_argument("--seed", type=int, default=600)
    p.add_argument("--walltime", type=int, default=130)
    return p.parse_args()


class Policy(nn.Module):
    def __init__(self, obs=9, hidden=48, act=3):
        super().__init__()
        self.fc1 = nn.Linear(obs, hidden)
        self.fc2 = nn.Linear(hidden, act)
        self.log_std = -1.6

    def forward(self, obs):
        return torch.tanh(self.fc2(torch.tanh(self.fc1(obs))))

    def export(self):
        return {"w1": self.fc1.weight.detach().numpy().copy(),
                "b1": self.fc1.bias.detach().numpy().copy(),
                "w2": self.fc2.weight.detach().numpy().copy(),
                "b2": self.fc2.bias.detach().numpy().copy()}


class Fleet:
    def __init__(self, args, policy):
        ctx = mp.get_context("spawn")
        self.data, self.policy_pipes, self.processes = [], [], []
        for i in range(args.vehicles):
            recv_end, send_end = ctx.Pipe(duplex=False)
            policy_recv, policy_send = ctx.Pipe(duplex=False)
            process = ctx.Process(target=run_vehicle, args=(i, send_end, policy_recv, args),
                                  name=f"vehicle-{i}", daemon=True)
            process.start()
            send_end.close()
            policy_recv.close()
            self.data.append(recv_end)
            self.policy_pipes.append(policy_send)
            self.processes.append(process)
        self.publish(policy)

    def publish(self, policy):
        weights = policy.export()
        for pipe in self.policy_pipes:
            pipe.send(weights)

    def episodes(self):
        while True:
            for conn in wait(self.data):
                yield conn.recv()


def returns(rewards, gamma):
    out, acc = [], 0.0
    for r in reversed(rewards):
        acc = r + gamma * acc
        out.append(acc)
    return out[::-1]


def update(policy, opt, batch, gamma):
    obs = torch.from_numpy(np.stack([s[0] for ep in batch for s in ep]))
    act = torch.from_numpy(np.stack([s[1] for ep in batch for s in ep]))
    ret = torch.tensor([r for ep in batch for r in returns([s[2] for s in ep], gamma)])
    adv = (ret - ret.mean()) / (ret.std() + 1e-6)
    log_prob = -((act - policy(obs)) ** 2).sum(1) / (2 * np.exp(2 * policy.log_std))
    loss = -(log_prob * adv).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item(), len(obs)


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    signal.alarm(args.walltime)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    policy = Policy()
    opt = torch.optim.Adam(policy.parameters(), lr=args.lr)
    fleet = Fleet(args, policy)
    batch, number, samples, t0 = [], 0, 0, time.monotonic()
    scores, late = collections.deque(maxlen=50), {}
    for index, episode, stats in fleet.episodes():
        batch.append(episode)
        scores.append(float(np.mean([s[2] for s in episode])))
        late[index] = stats["late"]
        if len(batch) < args.episodes_per_update:
            continue
        loss, count = update(policy, opt, batch, args.gamma)
        batch.clear()
        fleet.publish(policy)
        number, samples = number + 1, samples + count
        log.info("update %d: %d steps (%.1f/s), mean reward %.3f, loss %.3f, late ticks %d", number,
                 samples, samples / (time.monotonic() - t0), np.mean(scores), loss,
                 sum(late.values()))
        if number >= args.updates:
            break


if __name__ == "__main__":
    main()
