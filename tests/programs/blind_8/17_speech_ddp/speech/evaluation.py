import logging

import torch

log = logging.getLogger("speech")


class Evaluator:
    def __init__(self, batches=4):
        gen = torch.Generator().manual_seed(1000)
        self.batches = [torch.randn(256, 80, generator=gen) for _ in range(batches)]

    @torch.no_grad()
    def evaluate(self, model):
        model.eval()
        hits = 0
        for x in self.batches:
            hits += (model(x).argmax(-1) == (x.sum(-1) > 0).long()).sum().item()
        model.train()
        return hits / sum(len(x) for x in self.batches)
