"""A client of the federation: waits for a round it takes part in, trains, answers."""
import logging
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

DIM, CLASSES = 64, 5
STOP = -1


def build_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(DIM, 96), nn.ReLU(), nn.Linear(96, CLASSES))


def flatten(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def unflatten(model, vec):
    at = 0
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(vec[at:at + p.numel()].view_as(p))
            at += p.numel()


class Client:
    def __init__(self, rank, args):
        self.rank, self.args = rank, args
        self.log = logging.getLogger(f"client{rank}")
        self.model = build_model()
        g = torch.Generator().manual_seed(rank)
        self.x = torch.randn(4000, DIM, generator=g) + 0.2 * rank
        self.y = (self.x[:, :CLASSES] + 0.3 * torch.randn(4000, CLASSES, generator=g)).argmax(1)

    def fit(self):
        opt = torch.optim.SGD(self.model.parameters(), lr=0.05)
        until = time.monotonic() + self.args.fit_seconds
        steps = 0
        while time.monotonic() < until:
            idx = torch.randint(0, len(self.x), (256,))
            loss = F.cross_entropy(self.model(self.x[idx]), self.y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
            steps += 1
            time.sleep(0.004)
        return loss.item(), steps

    def loop(self):
        header = torch.zeros(1, dtype=torch.long)
        weights = flatten(self.model)
        while True:
            dist.recv(header, src=0)
            if header.item() == STOP:
                return
            dist.recv(weights, src=0)
            unflatten(self.model, weights)
            loss, steps = self.fit()
            self.log.info("round %d: %d steps, loss %.4f", header.item(), steps, loss)
            dist.send(torch.cat([flatten(self.model), torch.tensor([loss])]), dst=0)


def serve(rank, args, port):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", force=True)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                            world_size=args.clients + 1)
    Client(rank, args).loop()
    dist.destroy_process_group()
