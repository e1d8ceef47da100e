"""Pipeline-parallel pretraining of a small LM on three stages."""
import argparse
import logging
import os
import socket
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from schedule import OneForwardOneBackward
from stages import Stage, TokenDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
backend = "nccl" if device == "cuda" else "gloo"


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--stages", type=int, default=3)
    p.add_argument("--samples-per-epoch", type=int, default=100)
    p.add_argument("--microbatch", type=int, default=4)
    p.add_argument("--accumulate", type=int, default=8, help="microbatches per optimizer step")
    p.add_argument("--seq-len", type=int, default=64)
    p.add_argument("--width", type=int, default=256)
    p.add_argument("--epochs", type=int, default=50)
    p.add_argument("--walltime", type=float, default=125.0)
    return p.parse_args()


def pick_port():
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    port = s.getsockname()[1]
    s.close()
    return port


class PipelineTrainer:
    def __init__(self, args, rank):
        self.args, self.rank = args, rank
        self.data = TokenDataset(args.samples_per_epoch, args.seq_len, args.microbatch)
        self.stage = Stage(rank, args.stages, width=args.width).to(device)
        self.opt = torch.optim.AdamW(self.stage.parameters(), lr=2e-4)
        self.schedule = OneForwardOneBackward(
            self.stage, rank, args.stages, (args.microbatch, args.seq_len, args.width), device)
        self.global_step = 0

    def plan(self):
        """Microbatch counts of the optimizer steps of one epoch."""
        total = self.data.num_microbatches()
        full, rest = divmod(total, self.args.accumulate)
        return [self.args.accumulate] * full + ([rest] if rest else [])

    def optimizer_step(self, loss):
        torch.nn.utils.clip_grad_norm_(self.stage.parameters(), 1.0)
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)
        stat = torch.tensor([loss], device=device)
        dist.all_reduce(stat)
        self.global_step += 1
        return stat.item()

    def run(self):
        for epoch in range(self.args.epochs):
            tokens, labels = self.data.stream(epoch), self.data.stream(epoch)
            for count in self.plan():
                tick = time.monotonic()
                loss = self.schedule.step(count, tokens, labels)
                loss = self.optimizer_step(loss)
                if self.rank == 0:
                    logging.info("epoch %d step %d microbatches %d loss %.3f (%.2fs)", epoch,
                                 self.global_step, count, loss, time.monotonic() - tick)
            logging.info("epoch %d done", epoch)


def run_stage(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s stage{rank} %(message)s")
    stopper = threading.Timer(args.walltime, os._exit, (0,))
    stopper.daemon = True
    stopper.start()
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    os.environ["NCCL_HOSTID"] = f"node{rank}"
    torch.set_num_threads(1)
    torch.manual_seed(17 + rank)
    if device == "cuda":
        torch.cuda.set_device(0)
    dist.init_process_group(backend, rank=rank, world_size=args.stages)
    warm = torch.zeros(1, device=device)
    dist.all_reduce(warm)
    PipelineTrainer(args, rank).run()
    dist.destroy_process_group()


if __name__ == "__main__":
    args = get_args()
    mp.spawn(run_stage, args=(args, pick_port()), nprocs=args.stages)
