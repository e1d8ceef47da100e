import argparse
import logging
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn

import launch_env
from local_adam import LocalAdamW
from stations import StationShard

log = logging.getLogger("forecast")


def build_model(features, width, depth):
    layers = [nn.Linear(features, width), nn.GELU()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(width, 1))


class Trainer:
    def __init__(self, args, rank, device, report_group):
        self.args, self.rank, self.device, self.report_group = args, rank, device, report_group
        torch.manual_seed(args.seed)
        self.model = build_model(args.features, args.width, args.depth).to(device)
        self.optimizer = LocalAdamW(self.model.parameters(), lr=args.lr, kx=args.kx, ku=3 * args.kx, kv=6 * args.kx)
        self.scaler = torch.amp.GradScaler(device.type, init_scale=1024.0, growth_interval=2000)
        self.data = StationShard(rank, args.features)
        self.history = []

    def train_step(self):
        x, y = self.data.next_batch(self.args.batch_size, self.device)
        loss = F.mse_loss(self.model(x), y)
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), self.args.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()

    def report(self, step, loss, started):
        entry = {"rank": self.rank, "loss": loss.item(), "scale": self.scaler.get_scale()}
        entries = [None] * dist.get_world_size()
        dist.all_gather_object(entries, entry, group=self.report_group)
        if self.rank == 0:
            self.history.append(entries)
            log.info("step %d | loss %s | sync rounds %d | %.1f it/s", step,
                     " ".join(f"{e['loss']:.4f}" for e in entries), self.optimizer.sync_rounds,
                     step / (time.time() - started))

    def fit(self):
        started = time.time()
        for step in range(1, self.args.steps + 1):
            loss = self.train_step()
            if step % self.args.log_every == 0:
                self.report(step, loss, started)


def worker(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank{rank}] %(message)s")
    launch_env.apply(rank)
    torch.set_num_threads(1)
    cuda = torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    if cuda:
        torch.cuda.set_device(0)
    dist.init_process_group("nccl" if cuda else "gloo", init_method=f"tcp://127.0.0.1:{port}",
                            rank=rank, world_size=args.world_size)
    report_group = dist.new_group(backend="gloo")
    log.info("region %d on %s", rank, device)
    Trainer(args, rank, device, report_group).fit()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=48)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--kx", type=int, default=8)
    parser.add_argument("--log-every", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    mp.spawn(worker, args=(args, launch_env.free_port()), nprocs=args.world_size)


if __name__ == "__main__":
    main()
