import argparse
import logging
import os
import sys
import tempfile
import time

import torch
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.optim import Adam
from torch.optim.lr_scheduler import ReduceLROnPlateau

from backend import Backend, free_port
from data import build_loader


class TinyDecoder(nn.Module):
    def __init__(self, dim=96, hidden=256, vocab=64, depth=3):
        super().__init__()
        layers = [nn.Linear(dim, hidden), nn.GELU()]
        for _ in range(depth - 1):
            layers += [nn.Linear(hidden, hidden), nn.GELU()]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(hidden, vocab)

    def forward(self, x):
        return self.head(self.body(x))


def parse_args():
    p = argparse.ArgumentParser("train_captions")
    p.add_argument("--world-size", type=int, default=3)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--learning-rate", type=float, default=3e-3)
    p.add_argument("--lr-decay", action="store_true", default=True)
    p.add_argument("--clip-grad-norm", type=float, default=0.5)
    p.add_argument("--max-seconds", type=float, default=138.0)
    p.add_argument("--io-delay", type=float, default=0.03, help="simulated image decoding per batch")
    p.add_argument("--seed", type=int, default=42)
    p.add_argument("--output", default=None)
    return p.parse_args()


def get_logger(rank):
    logging.basicConfig(stream=sys.stdout, level=logging.INFO,
                        format=f"%(asctime)s [rank {rank}] %(message)s", force=True)
    return logging.getLogger("captions")


def build_model(args):
    model = TinyDecoder()
    return model, Adam(model.parameters(), lr=args.learning_rate)


def describe(args):
    model, opt = build_model(args)
    print(model)
    print(opt, flush=True)


def save_model(model, path, epoch):
    torch.save({"epoch": epoch, "weights": model.state_dict()}, path)


def train(rank, args, port, started):
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    log = get_logger(rank)
    backend = Backend(rank, args.world_size, port)

    model, opt = build_model(args)
    backend.broadcast_parameters(model)
    scheduler = ReduceLROnPlateau(opt, mode="min", factor=0.75, patience=1,
                                  cooldown=2, threshold=0.05) if args.lr_decay else None
    loader = build_loader(rank, args.world_size, args.batch_size, args.seed)
    log.info("%d batches per epoch, %d parameters", len(loader),
             sum(p.numel() for p in model.parameters()))

    epoch, step = 0, 0
    running = True
    while running:
        epoch_loss, seen = 0.0, 0
        for feats, tokens in loader:
            time.sleep(args.io_delay)
            loss = F.cross_entropy(model(feats), tokens)
            opt.zero_grad()
            loss.backward()
            backend.average_gradients(model)
            nn.utils.clip_grad_norm_(model.parameters(), args.clip_grad_norm)
            opt.step()
            epoch_loss += loss.item()
            seen += 1
            step += 1

            avg_loss = backend.average_all(loss)
            if backend.is_root and step % 40 == 0:
                log.info("epoch %d step %d loss %.4f", epoch, step, avg_loss)

        loss = epoch_loss / seen
        if scheduler is not None:
            scheduler.step(loss)
        weight_norm = torch.cat([p.detach().reshape(-1) for p in model.parameters()]).norm().item()
        log.info("epoch %d done: loss %.4f lr %.3g |w| %.5f", epoch, loss,
                 opt.param_groups[0]["lr"], weight_norm)
        if backend.is_root and epoch % 5 == 0:
            save_model(model, os.path.join(args.output, "dalle.pt"), epoch)
        epoch += 1
        elapsed = torch.tensor(time.time() - started)
        running = backend.average_all(elapsed) < args.max_seconds

    backend.shutdown()


def main():
    args = parse_args()
    if args.output is None:
        args.output = tempfile.mkdtemp(prefix="captions_")
    torch.set_num_threads(1)
    describe(args)
    mp.start_processes(train, args=(args, free_port(), time.time()), nprocs=args.world_size,
                       start_method="fork")


if __name__ == "__main__":
    main()
