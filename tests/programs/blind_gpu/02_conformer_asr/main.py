import argparse
import logging
import os
import socket
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from encoder import AcousticModel
from utterances import UtteranceReader

logger = logging.getLogger("asr")


def get_args():
    parser = argparse.ArgumentParser(description="Train a small conformer with CTC")
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--backend", default="nccl")
    parser.add_argument("--num-items", type=int, default=6000)
    parser.add_argument("--gpu-mem", type=float, default=0.9, help="GiB of GPU memory per rank")
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--log-every", type=int, default=10)
    return parser.parse_args()


class Trainer:
    def __init__(self, args, rank):
        self.args, self.rank = args, rank
        self.device = torch.device(args.device)
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            total = torch.cuda.get_device_properties(self.device).total_memory
            torch.cuda.set_per_process_memory_fraction(args.gpu_mem * 2**30 / total, self.device)
        self.model = DistributedDataParallel(AcousticModel().to(self.device))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        self.ctc = nn.CTCLoss(zero_infinity=True)
        self.cpu_group = dist.new_group(backend="gloo")
        self.skipped = 0

    def train_step(self, features, targets):
        log_probs = self.model(features.to(self.device))
        frames = torch.tensor([log_probs.shape[1]])
        lengths = torch.tensor([targets.shape[1]])
        loss = self.ctc(log_probs.transpose(0, 1), targets.to(self.device), frames, lengths)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.optimizer.step()
        return loss.item()

    def skip_batch(self, step, frames):
        logger.warning("ran out of memory at step %d (%d frames), skipping batch", step, frames)
        self.skipped += 1
        self.optimizer.zero_grad(set_to_none=True)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        dist.barrier(group=self.cpu_group)

    def fit(self, reader):
        for step, (features, targets) in enumerate(reader):
            self.optimizer.zero_grad(set_to_none=True)
            try:
                loss = self.train_step(features, targets)
            except torch.OutOfMemoryError:
                self.skip_batch(step, features.shape[1])
                continue
            if step % self.args.log_every == 0:
                logger.info("step %d/%d frames=%d loss=%.3f", step, len(reader), features.shape[1], loss)


def run(rank, args, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), NCCL_SOCKET_IFNAME="lo")
    os.environ["NCCL_HOSTID"] = f"host{rank}"
    logging.basicConfig(
        level=logging.INFO, stream=sys.stdout, format=f"%(asctime)s rank{rank} %(levelname)s %(message)s"
    )
    torch.manual_seed(1234)
    torch.set_num_threads(2)
    dist.init_process_group(args.backend, rank=rank, world_size=args.nproc)
    trainer = Trainer(args, rank)
    trainer.fit(UtteranceReader(rank, args.nproc, args.num_items))
    logger.info("epoch done, %d batches skipped", trainer.skipped)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    args = get_args()
    mp.spawn(run, args=(args, free_port()), nprocs=args.nproc)
