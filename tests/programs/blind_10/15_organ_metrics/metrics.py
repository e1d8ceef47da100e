import torch
import torch.distributed as dist

from data import ORGANS


class OrganRecall:
    def __init__(self):
        self.hits = {}
        self.total = {}

    def update(self, predicted, target):
        for label in target.unique().tolist():
            mask = target == label
            self.hits[label] = self.hits.get(label, 0) + (predicted[mask] == label).sum().item()
            self.total[label] = self.total.get(label, 0) + mask.sum().item()

    def compute(self):
        """Recall per organ over all ranks."""
        result = {}
        for label in sorted(self.total):
            pair = torch.tensor([self.hits[label], self.total[label]], dtype=torch.float64)
            dist.all_reduce(pair)
            result[ORGANS[label]] = (pair[0] / pair[1]).item()
        return result
