import logging
import time

import torch
from torch import nn

log = logging.getLogger("fed.client")


def build_model():
    return nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 4))


def sgd_step(module, lr):
    with torch.no_grad():
        for p in module.parameters():
            p.sub_(p.grad, alpha=lr)
            p.grad = None


class Client:
    def __init__(self, ident, inbox, outbox, local_epochs):
        self.ident = ident
        self.inbox = inbox
        self.outbox = outbox
        self.local_epochs = local_epochs
        gen = torch.Generator().manual_seed(100 + ident)
        self.x = torch.randn(400, 20, generator=gen)
        self.y = torch.randint(0, 4, (400,), generator=gen)
        self.model = build_model()

    def fit(self, weights):
        self.model.load_state_dict({k: torch.from_numpy(v) for k, v in weights.items()})
        for _ in range(self.local_epochs):
            for xb, yb in zip(self.x.split(50), self.y.split(50)):
                loss = nn.functional.cross_entropy(self.model(xb), yb)
                loss.backward()
                sgd_step(self.model, 0.05)
                time.sleep(0.01 * (1 + self.ident))
        return loss.item()

    def serve(self):
        while True:
            message = self.inbox.get()
            if message is None:
                log.info("client %d leaves", self.ident)
                return
            number, weights = message
            loss = self.fit(weights)
            update = {k: v.detach().numpy().copy() for k, v in self.model.state_dict().items()}
            self.outbox.put((number, self.ident, loss, update))
            log.info("client %d reported round %d (loss %.3f)", self.ident, number, loss)


def client_main(ident, inbox, outbox, local_epochs):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)
    Client(ident, inbox, outbox, local_epochs).serve()
