import logging
import time

import torch

from data import split_loaders
from model import VAE


class TissueTrainer:
    def __init__(self, tissue, args):
        self.tissue, self.args = tissue, args
        torch.manual_seed(args.seed)
        self.train_loader, self.val_loader = split_loaders(tissue, args.genes, args.train_size,
                                                           args.batch_size, args.seed)
        self.model = VAE(args.genes)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=args.lr)

    def epoch(self):
        self.model.train()
        for x in self.train_loader:
            loss = self.model.loss(x)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            time.sleep(self.args.pace)

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        values = [(self.model.loss(x).item(), len(x)) for x in self.val_loader]
        return sum(v * n for v, n in values) / sum(n for _, n in values)


def train_tissue(tissue, args, results):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)
    trainer = TissueTrainer(tissue, args)
    for epoch in range(args.max_epochs):
        trainer.epoch()
        results.put((tissue.name, epoch, trainer.validate()))
    results.put((tissue.name, "finished", None))
