import torch
import torch.distributed as dist


class ClassRecall:
    def __init__(self, names):
        self.names = names
        self.reset()

    def reset(self):
        self.hit = torch.zeros(len(self.names))
        self.total = torch.zeros(len(self.names))

    def update(self, pred, target):
        for c in range(len(self.names)):
            mask = target == c
            self.total[c] += mask.sum()
            self.hit[c] += (pred[mask] == c).sum()

    def compute(self):
        out = {}
        for c, name in enumerate(self.names):
            if self.total[c] > 0:
                out[f"recall/{name}"] = self.hit[c] / self.total[c]
        out["recall/mean"] = torch.stack(list(out.values())).mean()
        return out


def reduce_metrics(metrics):
    world = dist.get_world_size()
    reduced = {}
    for key in sorted(metrics):
        value = metrics[key].clone()
        dist.all_reduce(value)
        reduced[key] = value.item() / world
    return reduced
