"""Fine-tune a small encoder for intent classification on several processes."""
import argparse
import logging
import socket
import time

import torch
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import Dataset

from accel import Accelerator
from progress import ProgressBar


class IntentDataset(Dataset):
    def __init__(self, size, vocab, length, classes, seed):
        g = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(0, vocab, (size, length), generator=g)
        self.labels = self.ids[:, :4].sum(1) % classes

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        time.sleep(0.004)  # tokenizer
        return self.ids[i], self.labels[i]


class Encoder(nn.Module):
    def __init__(self, vocab, classes, dim=64):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.ff = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        self.head = nn.Linear(dim, classes)

    def forward(self, ids):
        x = self.emb(ids)
        x = x + self.ff(x)
        return self.head(x.mean(1))


def evaluate(model, loader, accelerator):
    model.eval()
    hits = []
    with torch.no_grad():
        for ids, labels in loader:
            pred = model.module(ids).argmax(-1)
            hits.append(accelerator.gather_for_metrics((pred == labels).float()))
    model.train()
    return torch.cat(hits).mean().item()


def run(rank, args, port):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {rank}] %(message)s")
    log = logging.getLogger("train")
    accelerator = Accelerator(rank, args.world_size, port)
    train_loader = accelerator.prepare_loader(IntentDataset(8000, 2000, 32, 8, 0), args.batch_size, True)
    eval_loader = accelerator.prepare_loader(IntentDataset(320, 2000, 32, 8, 1), args.batch_size, False)
    model = accelerator.prepare_model(Encoder(2000, 8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    total_steps = args.epochs * len(train_loader)
    progress_bar = ProgressBar(total_steps, desc="train", disable=not accelerator.is_main_process)
    best = 0.0
    log.info("start, %d steps, evaluation every %d", total_steps, args.eval_steps)
    for epoch in range(args.epochs):
        train_loader.sampler.set_epoch(epoch)
        for ids, labels in train_loader:
            loss = nn.functional.cross_entropy(model(ids), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            progress_bar.update(1)
            progress_bar.set_postfix(loss=loss.item())
            if progress_bar.n > 0 and progress_bar.n % args.eval_steps == 0:
                log.info("evaluating at step %d", progress_bar.n)
                acc = evaluate(model, eval_loader, accelerator)
                best = max(best, acc)
                log.info("step %d: accuracy %.4f (best %.4f)", progress_bar.n, acc, best)
        log.info("epoch %d done", epoch)
    accelerator.end_training()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=2)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--eval-steps", type=int, default=40)
    args = p.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.start_processes(run, args=(args, port), nprocs=args.world_size, start_method="fork")


if __name__ == "__main__":
    main()
