import logging
import selectors
import socket
import time
from collections import deque

import torch
import torch.nn as nn

from stream import ObjectStream

log = logging.getLogger("learner")


class Learner:
    def __init__(self, args):
        self.args = args
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.port = self.sock.getsockname()[1]
        dim = 6 + args.pixels
        self.policy = nn.Linear(dim, 2)
        self.value = nn.Sequential(nn.Linear(dim, 64), nn.Tanh(), nn.Linear(64, 1))
        self.optim = torch.optim.Adam([*self.policy.parameters(), *self.value.parameters()], lr=args.lr)
        self.recent = deque(maxlen=args.window)
        self.returns = deque(maxlen=100)

    def weights(self):
        return {"w": self.policy.weight.detach().T.contiguous().numpy().copy(),
                "b": self.policy.bias.detach().numpy().copy()}

    def add(self, traj):
        rew = torch.from_numpy(traj["rew"])
        ret = torch.flip(torch.cumsum(torch.flip(rew, [0]), 0), [0]) / len(rew)
        self.recent.append((torch.from_numpy(traj["obs"][:-1]), torch.from_numpy(traj["act"]), ret))
        self.returns.append(float(rew.mean()))

    def update(self):
        obs, act, ret = (torch.cat(x) for x in zip(*self.recent))
        pick = torch.randint(len(obs), (self.args.batch,))
        obs, act, ret = obs[pick], act[pick], ret[pick]
        value = self.value(obs).squeeze(-1)
        adv = (ret - value).detach()
        adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        logp = -((act - torch.tanh(self.policy(obs))) ** 2).sum(-1) / (2 * self.args.noise ** 2)
        loss = -(adv * logp).mean() * 0.1 + nn.functional.mse_loss(value, ret)
        self.optim.zero_grad()
        loss.backward()
        self.optim.step()
        return loss.item()

    def serve(self):
        sel = selectors.DefaultSelector()
        sel.register(self.sock, selectors.EVENT_READ, None)
        total, begin = 0, time.time()
        while True:
            for key, _ in sel.select():
                if key.data is None:
                    conn, _ = self.sock.accept()
                    stream = ObjectStream(conn)
                    hello = stream.recv()
                    stream.send(self.weights())
                    sel.register(conn, selectors.EVENT_READ, stream)
                    log.info("actor %d connected", hello["actor"])
                    continue
                self.add(key.data.recv())
                key.data.send(self.weights())
                total += 1
                if total % 4 == 0:
                    loss = self.update()
                if total % 100 == 0:
                    log.info("episodes %d (%.1f/s) window %d return %.3f loss %.3f", total,
                             total / (time.time() - begin), len(self.recent),
                             sum(self.returns) / len(self.returns), loss)
