"""Policy server: one attention memory per session, batched inference."""
import logging
import queue
import time

import torch
from torch import nn

from protocol import Act, Delete, Initialize

log = logging.getLogger("server")


class MemoryPolicy(nn.Module):
    def __init__(self, obs_dim=12, width=128, actions=4):
        super().__init__()
        self.width = width
        self.embed = nn.Linear(obs_dim, width)
        self.qkv = nn.Linear(width, 3 * width)
        self.head = nn.Linear(width, actions)

    @torch.no_grad()
    def step(self, sessions, obs):
        h = torch.tanh(self.embed(obs))
        q, k, v = self.qkv(h).chunk(3, dim=-1)
        out = []
        for i, s in enumerate(sessions):
            s.append(k[i], v[i])
            keys, values = s.view()
            weights = torch.softmax(keys @ q[i] / self.width ** 0.5, dim=0)
            out.append(weights @ values)
        return self.head(h + torch.stack(out)).argmax(dim=-1)


class Session:
    def __init__(self, context, width):
        self.memory = torch.zeros(2, context, width)
        self.length = 0

    def append(self, key, value):
        slot = self.length % self.memory.shape[1]
        self.memory[0, slot] = key
        self.memory[1, slot] = value
        self.length += 1

    def view(self):
        n = min(self.length, self.memory.shape[1])
        return self.memory[0, :n], self.memory[1, :n]


class PolicyServer:
    def __init__(self, requests, replies, context, max_batch):
        self.requests, self.replies = requests, replies
        self.context, self.max_batch = context, max_batch
        self.policy = MemoryPolicy()
        self.sessions = {}
        self.steps = 0

    def drain(self):
        batch = [self.requests.get()]
        while len(batch) < self.max_batch:
            try:
                batch.append(self.requests.get(timeout=0.001))
            except queue.Empty:
                break
        return batch

    def handle(self, batch):
        acts = []
        for message in batch:
            if isinstance(message, Initialize):
                self.sessions[message.session] = Session(self.context, self.policy.width)
            elif isinstance(message, Delete):
                self.sessions.pop(message.session, None)
            elif isinstance(message, Act):
                acts.append(message)
        if acts:
            obs = torch.stack([torch.from_numpy(m.observation) for m in acts])
            actions = self.policy.step([self.sessions[m.session] for m in acts], obs)
            for m, a in zip(acts, actions.tolist()):
                self.replies[m.client].put(a)
            self.steps += len(acts)

    def serve(self, report_every):
        last, mark = 0, time.monotonic()
        while True:
            self.handle(self.drain())
            now = time.monotonic()
            if now - mark > report_every:
                log.info("%.0f steps/s, total %d", (self.steps - last) / (now - mark), self.steps)
                last, mark = self.steps, now


def serve(requests, replies, context, max_batch, report_every):
    torch.set_num_threads(1)
    PolicyServer(requests, replies, context, max_batch).serve(report_every)
