"""Learner side: a receiver thread feeds the learner thread."""
import queue
import threading
import time

import torch
from torch import nn


class ConvPolicy(nn.Module):
    def __init__(self, actions=4):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 4, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 8 * 8, 64), nn.ReLU())
        self.pi, self.v = nn.Linear(64, actions), nn.Linear(64, 1)

    def forward(self, x):
        h = self.body(x)
        return self.pi(h), self.v(h).squeeze(-1)


class LearnerThread(threading.Thread):
    def __init__(self, policy, epochs=3):
        super().__init__(name="learner", daemon=True)
        self.policy, self.epochs = policy, epochs
        self.inqueue = queue.Queue()
        self.opt = torch.optim.RMSprop(policy.parameters(), 5e-5)
        self.updates, self.last_loss = 0, 0.0

    def run(self):
        while True:
            rollout = self.inqueue.get()
            obs = torch.from_numpy(rollout["obs"])
            act = torch.from_numpy(rollout["act"])
            rew = torch.from_numpy(rollout["rew"])
            for _ in range(self.epochs):
                for part in torch.randperm(len(obs)).chunk(4):
                    logits, value = self.policy(obs[part])
                    adv = rew[part] - value
                    logp = torch.log_softmax(logits, 1).gather(1, act[part, None]).squeeze(1)
                    loss = -(logp * adv.detach()).mean() + 0.5 * adv.pow(2).mean()
                    self.opt.zero_grad()
                    loss.backward()
                    self.opt.step()
            time.sleep(0.3)
            self.updates += 1
            self.last_loss = loss.item()


class Receiver(threading.Thread):
    def __init__(self, source, learner):
        super().__init__(name="receiver", daemon=True)
        self.source, self.learner, self.received = source, learner, 0

    def run(self):
        while True:
            self.learner.inqueue.put(self.source.get())
            self.received += 1
