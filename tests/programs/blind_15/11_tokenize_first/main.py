"""Tokenize a text corpus once, then train a bag-of-tokens model with DDP on all ranks."""
import argparse
import logging
import os
import socket
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from state import PartialState
from tokenization import tokenize_split

log = logging.getLogger("train")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--nproc", type=int, default=3)
    p.add_argument("--train-docs", type=int, default=9000)
    p.add_argument("--eval-docs", type=int, default=1500)
    p.add_argument("--docs-per-second", type=float, default=280.0, help="tokenizer throughput limit")
    p.add_argument("--max-seconds", type=float, default=55)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--eval-every", type=float, default=12)
    p.add_argument("--cache-dir", default=None)
    return p.parse_args()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class BagModel(nn.Module):
    def __init__(self, vocab=2048, dim=64, classes=8):
        super().__init__()
        self.emb = nn.EmbeddingBag(vocab, dim)
        self.head = nn.Sequential(nn.Linear(dim, 128), nn.ReLU(), nn.Linear(128, classes))

    def forward(self, ids):
        return self.head(self.emb(ids))


def evaluate(model, data, state):
    shard = torch.arange(state.process_index, len(data), state.num_processes)
    ids, labels = data[shard]
    with torch.no_grad():
        correct = (model(ids).argmax(1) == labels).sum()
    stats = torch.tensor([float(correct), float(len(labels))])
    dist.all_reduce(stats)
    return (stats[0] / stats[1]).item()


def worker(rank, args, port):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s rank" + str(rank) + " %(message)s")
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    torch.set_num_threads(1)
    state = PartialState(rank, args.nproc)
    with state.main_process_first():
        train = tokenize_split(args.cache_dir, "train", args.train_docs, args.docs_per_second)
    with state.main_process_first():
        val = tokenize_split(args.cache_dir, "eval", args.eval_docs, args.docs_per_second)
    train, val = TensorDataset(*train), TensorDataset(*val)
    sampler = DistributedSampler(train, shuffle=True, drop_last=True)
    loader = DataLoader(train, args.batch_size, sampler=sampler, drop_last=True)
    torch.manual_seed(0)
    model = DDP(BagModel())
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    start = last_eval = time.time()
    epoch = step = 0
    running = True
    while running:
        sampler.set_epoch(epoch)
        for ids, labels in loader:
            loss = F.cross_entropy(model(ids), labels)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            time.sleep(0.03)
            if step % 20 == 0:
                flags = torch.tensor([time.time() - start > args.max_seconds,
                                      time.time() - last_eval > args.eval_every], dtype=torch.int32)
                dist.broadcast(flags, src=0)
                if rank == 0:
                    log.info("epoch %d step %d loss %.4f", epoch, step, loss.item())
                if flags[1]:
                    acc = evaluate(model.module, val, state)
                    last_eval = time.time()
                    if rank == 0:
                        log.info("step %d accuracy %.4f", step, acc)
                if flags[0]:
                    running = False
                    break
        epoch += 1
    state.wait_for_everyone()
    if rank == 0:
        log.info("training finished after %d steps", step)
    dist.destroy_process_group()


def main():
    args = parse_args()
    args.cache_dir = args.cache_dir or tempfile.mkdtemp(prefix="tokens_")
    mp.spawn(worker, args=(args, free_port()), nprocs=args.nproc)


if __name__ == "__main__":
    main()
