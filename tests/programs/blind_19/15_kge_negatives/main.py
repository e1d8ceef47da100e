import argparse
import logging
import os
import threading
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from triples import BasicNegativeSampler, SLCWAInstances, TriplesFactory

log = logging.getLogger("kge")


class DistMult(nn.Module):
    def __init__(self, n_entities, n_relations, dim):
        super().__init__()
        self.entities = nn.Embedding(n_entities, dim)
        self.relations = nn.Embedding(n_relations, dim)
        nn.init.normal_(self.entities.weight, std=dim ** -0.5)
        nn.init.normal_(self.relations.weight, std=dim ** -0.5)

    def score(self, triples):
        h = self.entities(triples[..., 0])
        r = self.relations(triples[..., 1])
        t = self.entities(triples[..., 2])
        return (h * r * t).sum(-1)


class TrainingLoop:
    def __init__(self, model, loader, lr):
        self.model, self.loader = model, loader
        self.optimizer = torch.optim.Adagrad(model.parameters(), lr=lr)
        self.margin = 1.0

    def train_step(self, positives, negatives, mask):
        pos = self.model.score(positives).unsqueeze(1)
        neg = self.model.score(negatives)
        loss = (F.relu(self.margin + neg - pos) * mask).sum() / mask.sum().clamp(min=1)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def train(self, until, log_every):
        step, epoch = 0, 0
        mark = time.time()
        while time.time() < until:
            for positives, negatives, mask in self.loader:
                loss = self.train_step(positives, negatives, mask)
                step += 1
                if step % log_every == 0:
                    now = time.time()
                    log.info("epoch %d step %d loss %.4f | %.0f triples/s",
                             epoch, step, loss, log_every * len(positives) / (now - mark))
                    mark = now
                if time.time() > until:
                    break
            epoch += 1
        return step


def main():
    p = argparse.ArgumentParser(description="Trains DistMult under the sLCWA")
    p.add_argument("--dim", type=int, default=32)
    p.add_argument("--batch-size", type=int, default=1024)
    p.add_argument("--num-negs", type=int, default=2)
    p.add_argument("--num-workers", type=int, default=2)
    p.add_argument("--lr", type=float, default=5e-2)
    p.add_argument("--seconds", type=float, default=125)
    p.add_argument("--log-every", type=int, default=100)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    stop = threading.Timer(145, os._exit, (0,))
    stop.daemon = True
    stop.start()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    until = time.time() + args.seconds
    factory = TriplesFactory()
    sampler = BasicNegativeSampler(factory, args.num_negs)
    instances = SLCWAInstances(factory, sampler)
    loader = DataLoader(instances, batch_size=args.batch_size, shuffle=True, num_workers=args.num_workers,
                        collate_fn=instances.collate, drop_last=True, persistent_workers=True)
    model = DistMult(factory.n_entities, factory.n_relations, args.dim)
    log.info("%d triples, %d steps an epoch", len(instances), len(loader))
    steps = TrainingLoop(model, loader, args.lr).train(until, args.log_every)
    log.info("stopped after %d steps", steps)


if __name__ == "__main__":
    main()
