"""Question answering head on two ranks; features are made once by the first rank and cached."""
import argparse
import logging
import socket
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

from features import load_and_cache_examples


class SpanModel(nn.Module):
    def __init__(self, vocab=3001, dim=48):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.conv = nn.Conv1d(dim, dim, 5, padding=2)
        self.start = nn.Linear(dim, 1)

    def forward(self, ids):
        h = torch.relu(self.conv(self.emb(ids).transpose(1, 2))).transpose(1, 2)
        return self.start(h).squeeze(-1)


def evaluate(model, args, log):
    dataset = load_and_cache_examples(args, 0, evaluate=True)
    hits = 0
    with torch.no_grad():
        for ids, starts in DataLoader(dataset, batch_size=32):
            hits += int((model(ids).argmax(1) == starts).sum())
            time.sleep(args.step_time)
    log.info("exact start %.4f on %d examples", hits / len(dataset), len(dataset))


def run(rank, args, port):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank {rank} %(name)s %(message)s")
    log = logging.getLogger("run_squad")
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=args.world_size)
    begin = time.time()
    dataset = load_and_cache_examples(args, rank)
    sampler = DistributedSampler(dataset, args.world_size, rank)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler, drop_last=True)
    model = DDP(SpanModel())
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    step, epoch = 0, 0
    while step < args.max_steps:
        sampler.set_epoch(epoch)
        for ids, starts in loader:
            loss = nn.functional.cross_entropy(model(ids), starts)
            opt.zero_grad()
            loss.backward()
            opt.step()
            time.sleep(args.step_time)
            step += 1
            if step % 50 == 0 and rank == 0:
                log.info("step %d loss %.4f", step, loss.item())
            if step >= args.max_steps:
                break
        epoch += 1
    log.info("trained %d steps in %.0fs", step, time.time() - begin)
    if rank == 0:
        evaluate(model.module, args, log)
    dist.barrier()
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=2)
    p.add_argument("--examples", type=int, default=6000)
    p.add_argument("--max-len", type=int, default=64)
    p.add_argument("--convert-pace", type=float, default=0.006, help="seconds per example for the word piece model")
    p.add_argument("--batch-size", type=int, default=24)
    p.add_argument("--max-steps", type=int, default=400)
    p.add_argument("--step-time", type=float, default=0.1)
    p.add_argument("--data-dir", default=None)
    args = p.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="squad_") as folder:
        args.data_dir = args.data_dir or folder
        mp.start_processes(run, args=(args, port), nprocs=args.world_size, start_method="fork")


if __name__ == "__main__":
    main()
