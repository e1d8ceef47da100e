"""AUROC over a whole pass, with list states as the usual metric library keeps them."""
import torch


class MultilabelAUROC:
    def __init__(self, num_labels):
        self.num_labels = num_labels
        self.reset()

    def reset(self):
        self.preds = []
        self.target = []

    def update(self, preds, target):
        if not torch.all((preds >= 0) & (preds <= 1)):
            preds = preds.sigmoid()
        self.preds.append(preds)
        self.target.append(target)

    def compute(self):
        preds, target = torch.cat(self.preds), torch.cat(self.target)
        values = []
        for k in range(self.num_labels):
            order = preds[:, k].argsort()
            rank = torch.empty_like(order, dtype=torch.float)
            rank[order] = torch.arange(1, len(order) + 1, dtype=torch.float)
            pos = target[:, k] == 1
            n_pos, n_neg = pos.sum(), (~pos).sum()
            values.append((rank[pos].sum() - n_pos * (n_pos + 1) / 2) / (n_pos * n_neg))
        return torch.stack(values).mean().item()
