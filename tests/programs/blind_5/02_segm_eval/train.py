import argparse
import logging
import time

import torch
import torch.distributed as dist
from torch import nn

from metrics import ClassRecall, reduce_metrics

CLASSES = ["road", "building", "vegetation", "cyclist"]
log = logging.getLogger("segm")


class TinySegm(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, classes, 1))

    def forward(self, x):
        return self.body(x)


class TileSource:
    """Tiles are assigned to ranks by city district."""

    def __init__(self, rank, world):
        self.rank, self.world = rank, world
        self.gen = torch.Generator().manual_seed(rank)
        self.val_gen = torch.Generator().manual_seed(1000 + rank)

    def _tile(self, gen, classes):
        x = torch.randn(4, 3, 16, 16, generator=gen)
        y = torch.randint(0, classes, (4, 16, 16), generator=gen)
        return x, y

    def train(self):
        return self._tile(self.gen, len(CLASSES))

    def validation(self, n):
        present = len(CLASSES) - 1 if self.rank == self.world - 1 else len(CLASSES)
        for _ in range(n):
            yield self._tile(self.val_gen, present)


def validate(model, source, recall, args):
    recall.reset()
    with torch.no_grad():
        for x, y in source.validation(args.val_tiles):
            recall.update(model(x).argmax(1), y)
    metrics = reduce_metrics(recall.compute())
    decision = [None]
    if dist.get_rank() == 0:
        decision = [{"recall": metrics["recall/mean"], "stop": False}]
    dist.broadcast_object_list(decision, src=0)
    return metrics, decision[0]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=50)
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--val-tiles", type=int, default=6)
    args = p.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(message)s")
    torch.manual_seed(0)
    model = TinySegm(len(CLASSES))
    source = TileSource(rank, world)
    recall = ClassRecall(CLASSES)
    for epoch in range(args.epochs):
        for _ in range(args.steps):
            x, y = source.train()
            loss = nn.functional.cross_entropy(model(x), y)
            model.zero_grad()
            loss.backward()
            for q in model.parameters():
                dist.all_reduce(q.grad)
                with torch.no_grad():
                    q -= 0.05 * q.grad / world
            time.sleep(0.02)
        if rank == 0:
            log.info("epoch %d loss %.4f", epoch, loss.item())
        metrics, decision = validate(model, source, recall, args)
        if rank == 0:
            log.info("validation %s", metrics)
        if decision["stop"]:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
