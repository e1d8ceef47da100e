import argparse
import logging
import os
import socket
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from net import BlockLM
from streaming import StreamingTokens, build_index

logger = logging.getLogger(__name__)


def parse_args():
    parser = argparse.ArgumentParser(description="Pretrain a small LM from a streamed corpus")
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--backend", default="nccl")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--num-workers", type=int, default=0)
    parser.add_argument("--lr", type=float, default=5e-4)
    return parser.parse_args()


class EpochMetrics:
    """Loss sums of an epoch, reduced over a group of their own."""

    def __init__(self, device, group):
        self.group = group
        self.sums = torch.zeros(2, device=device)
        self.reduce()

    def update(self, loss, count):
        self.sums[0] += loss.detach() * count
        self.sums[1] += count

    def reduce(self):
        total = self.sums.clone()
        dist.all_reduce(total, group=self.group)
        self.sums.zero_()
        total = total.tolist()
        return total[0] / max(total[1], 1.0)


def train_epoch(model, loader, optimizer, metrics, device, epoch):
    batches = 0
    for blocks in loader:
        blocks = blocks.to(device, non_blocking=True)
        logits = model(blocks[:, :-1])
        loss = cross_entropy(logits.flatten(0, 1), blocks[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        metrics.update(loss, len(blocks))
        batches += 1
        if batches % 5 == 0:
            logger.info("epoch %d batch %d loss %.3f", epoch, batches, loss.item())
    logger.info("epoch %d: %d batches", epoch, batches)
    return metrics.reduce()


def run(rank, args, port, index_path):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    os.environ["NCCL_SOCKET_IFNAME"] = "lo"
    os.environ["NCCL_HOSTID"] = f"host{rank}"
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format=f"%(asctime)s rank {rank}: %(message)s")
    torch.set_num_threads(2)
    device = torch.device(args.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(args.backend, rank=rank, world_size=args.world_size)
    metric_group = dist.new_group(backend=args.backend)
    torch.manual_seed(7)
    model = DistributedDataParallel(BlockLM().to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    dataset = StreamingTokens(index_path, rank, args.world_size)
    loader = DataLoader(dataset, args.batch_size, num_workers=args.num_workers, drop_last=True)
    metrics = EpochMetrics(device, metric_group)
    for epoch in range(args.epochs):
        dataset.set_epoch(epoch)
        mean_loss = train_epoch(model, loader, optimizer, metrics, device, epoch)
        if rank == 0:
            logger.info("epoch %d done, mean loss %.4f", epoch, mean_loss)
    dist.destroy_process_group()


def main():
    args = parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="corpus-") as folder:
        index_path = build_index(folder)
        mp.spawn(run, args=(args, port, index_path), nprocs=args.world_size)


if __name__ == "__main__":
    main()
