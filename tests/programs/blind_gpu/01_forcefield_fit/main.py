import argparse
import logging
import os
import socket
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from data import ConfigurationDataset
from model import EnergyModel

log = logging.getLogger("fit")


def parse_args():
    p = argparse.ArgumentParser(description="Fit an energy model on several ranks")
    p.add_argument("--world-size", type=int, default=2)
    p.add_argument("--device", default="cuda:0")
    p.add_argument("--backend", default="nccl")
    p.add_argument("--epochs", type=int, default=500)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--patience", type=int, default=3)
    p.add_argument("--min-delta", type=float, default=0.06)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--model-dir", default="models")
    return p.parse_args()


def evaluate(model, loader, device):
    total = torch.zeros(2, device=device)
    model.eval()
    with torch.no_grad():
        for positions, energies in loader:
            pred = model.module(positions.to(device))
            total[0] += (pred - energies.to(device)).abs().sum()
            total[1] += len(positions)
    dist.all_reduce(total)
    model.train()
    return (total[0] / total[1]).item()


def error_table(model, dataset, device):
    with torch.no_grad():
        pred = model.module(dataset.positions.to(device)).cpu()
    return (pred - dataset.energies).abs().tolist()


class Fitter:
    def __init__(self, args, rank, world_size, device):
        self.args, self.rank, self.world_size, self.device = args, rank, world_size, device
        self.model = DDP(EnergyModel().to(device))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        train_set = ConfigurationDataset(288, seed=1)
        valid_set = ConfigurationDataset(96, seed=2, read_delay=0.001)
        self.test_set = ConfigurationDataset(64, seed=10 + rank)
        self.sampler = DistributedSampler(train_set, world_size, rank)
        self.train_loader = DataLoader(train_set, args.batch_size, sampler=self.sampler)
        self.valid_loader = DataLoader(
            valid_set, args.batch_size, sampler=DistributedSampler(valid_set, world_size, rank)
        )

    def train_epoch(self, epoch):
        self.sampler.set_epoch(epoch)
        running = 0.0
        for positions, energies in self.train_loader:
            pred = self.model(positions.to(self.device))
            loss = torch.nn.functional.mse_loss(pred, energies.to(self.device))
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            running += loss.item()
        return running / len(self.train_loader)

    def run(self):
        best, patience_counter = float("inf"), 0
        for epoch in range(self.args.epochs):
            train_loss = self.train_epoch(epoch)
            valid_error = evaluate(self.model, self.valid_loader, self.device)
            if self.rank == 0:
                log.info("epoch %d loss=%.4f valid_mae=%.4f", epoch, train_loss, valid_error)
                if valid_error < best - self.args.min_delta:
                    best, patience_counter = valid_error, 0
                    torch.save(self.model.module.state_dict(), os.path.join(self.args.model_dir, "best.pt"))
                else:
                    patience_counter += 1
                    if patience_counter >= self.args.patience:
                        log.info("stopping after %d epochs without improvement", patience_counter)
                        break
        log.info("computing test errors")
        return error_table(self.model, self.test_set, self.device)


def worker(rank, args, port):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    os.environ["NCCL_SOCKET_IFNAME"] = "lo"
    os.environ["NCCL_HOSTID"] = f"host{rank}"
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format=f"%(asctime)s [{rank}] %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    device = torch.device(args.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(args.backend, rank=rank, world_size=args.world_size)
    cpu_group = dist.new_group(backend="gloo")
    errors = Fitter(args, rank, args.world_size, device).run()
    tables = [None] * args.world_size if rank == 0 else None
    dist.gather_object(errors, tables, dst=0, group=cpu_group)
    if rank == 0:
        flat = [e for table in tables for e in table]
        log.info("test MAE over %d configurations: %.4f", len(flat), sum(flat) / len(flat))
    dist.destroy_process_group()


def main():
    args = parse_args()
    os.makedirs(args.model_dir, exist_ok=True)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, args=(args, port), nprocs=args.world_size, join=True)


if __name__ == "__main__":
    main()
