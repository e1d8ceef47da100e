import argparse
import logging
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from trainer import Trainer, TrainingState


class DocNN(nn.Module):
    def __init__(self, vocab=400):
        super().__init__()
        self.emb, self.out = nn.EmbeddingBag(vocab, 32), nn.Linear(32, 2)

    def forward(self, x):
        return self.out(self.emb(x))


def batches(seed, n):
    g = torch.Generator().manual_seed(seed)
    res = []
    for _ in range(n):
        x = torch.randint(0, 400, (16, 24), generator=g)
        res.append((x, (x.float().mean(1) > 200).long()))
    return res


def worker(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s worker {rank} %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=args.workers)
    model = DocNN()
    state = TrainingState(rank, model, torch.optim.Adam(model.parameters(), lr=2e-4))
    val = batches(99, 20)

    @torch.no_grad()
    def evaluate(state):
        # smooth accuracy, always a little better while the loss goes down
        return -sum(nn.functional.cross_entropy(state.model(x), y).item() for x, y in val) / len(val)

    best = Trainer(args.epochs, args.early_stop_after).train(state, batches(rank, 8), evaluate)
    logging.info("best metric %s", best)
    dist.destroy_process_group()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--workers", type=int, default=3)
    ap.add_argument("--epochs", type=int, default=200)
    ap.add_argument("--early-stop-after", type=int, default=10)
    args = ap.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.start_processes(worker, args=(args, port), nprocs=args.workers, start_method="fork")


if __name__ == "__main__":
    main()
