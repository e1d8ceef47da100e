import logging
import time

import torch
from torch import nn

log = logging.getLogger("client")


def build_model():
    return nn.Sequential(nn.Conv1d(1, 16, 5), nn.ReLU(), nn.Conv1d(16, 16, 5), nn.ReLU(), nn.Flatten(),
                         nn.LazyLinear(1))


class Client:
    """One participant: a short local training, then an evaluation of the local model."""

    def __init__(self, cid, length):
        torch.manual_seed(cid)
        torch.set_num_threads(1)
        self.cid = cid
        self.x = torch.randn(512, 1, length)
        self.y = self.x.mean(2)
        self.model = build_model()
        self.model(self.x[:2])
        self.opt = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.history = {"train": [], "val": []}

    def _pick(self, n):
        idx = torch.randint(0, len(self.x), (n,))
        return self.x[idx], self.y[idx]

    def train(self, steps):
        self.model.train()
        for _ in range(steps):
            x, y = self._pick(8)
            loss = ((self.model(x) - y) ** 2).mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.history["train"].append(loss.item())

    def evaluate(self):
        self.model.eval()
        x, y = self._pick(32)
        loss = ((self.model(x) - y) ** 2).mean()
        self.history["val"].append(loss)
        return sum(self.history["val"]) / len(self.history["val"])

    def state(self):
        return {k: v.numpy().copy() for k, v in self.model.state_dict().items()}

    def load(self, weights):
        self.model.load_state_dict({k: torch.from_numpy(v) for k, v in weights.items()})


def client_main(cid, conn, length, pause):
    client = Client(cid, length)
    while True:
        msg = conn.recv()
        if msg is None:
            break
        client.load(msg)
        client.train(2)
        score = client.evaluate()
        conn.send((client.state(), float(score)))
        time.sleep(pause)
