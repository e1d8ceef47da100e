"""Program nodes of the distributed agent."""
import logging
import queue
import random
import time

import torch
from torch import nn


def _setup(name):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [{name}] %(message)s")
    torch.set_num_threads(1)
    return logging.getLogger(name)


class PrioritizedTable:
    def __init__(self, size=512):
        self.data, self.prio, self.size = [], [], size

    def insert(self, item, p):
        if len(self.data) >= self.size:
            self.data.pop(0)
            self.prio.pop(0)
        self.data.append(item)
        self.prio.append(p)

    def sample(self, n):
        probs = torch.tensor(self.prio) ** 0.6
        idx = torch.multinomial(probs, n, replacement=True)
        return torch.tensor([self.data[i] for i in idx])


def learner(adder, weights, counter):
    log = _setup("learner")
    net, table = nn.Linear(8, 1), PrioritizedTable()
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    step = 0
    while True:
        try:
            while True:
                item, td = adder.get_nowait()
                table.insert(item, td)
        except queue.Empty:
            pass
        if len(table.data) < 64:
            time.sleep(0.1)
            continue
        x = table.sample(32)
        loss = (net(x) - x.sum(-1, keepdim=True)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        counter.value = step
        time.sleep(0.05)
        if step % 25 == 0:
            log.info("learner step %d loss %.4f", step, loss.item())
            with weights.get_lock():
                weights[:] = net.weight.detach().flatten().tolist()


def actor(idx, adder, weights, counter):
    log = _setup(f"actor-{idx}")
    rng, n = random.Random(idx), 0
    while True:
        time.sleep(0.08)
        n += 1
        obs = [rng.gauss(0, 1) for _ in range(8)]
        q = sum(w * o for w, o in zip(weights[:], obs))
        # the reward model saturates late in an episode
        reward = float("inf") if n == 230 and idx == 0 else 1.0
        td = abs(reward - q) if reward < float("inf") else reward - reward
        try:
            adder.put((obs, td), timeout=1.0)
        except queue.Full:
            pass
        if n % 100 == 0:
            log.info("episode %d return %.2f (learner at %d)", n // 100, q, counter.value)


def evaluator(weights, counter):
    log = _setup("evaluator")
    while True:
        time.sleep(4)
        w = torch.tensor(weights[:])
        log.info("evaluation: |1-w| %.4f at learner step %d", (1 - w).abs().mean().item(), counter.value)
