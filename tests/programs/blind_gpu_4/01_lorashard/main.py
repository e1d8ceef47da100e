import argparse
import logging
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn

import launch_env
from optim import Prodigy
from sharding import FlatSharded

log = logging.getLogger("finetune")


class Backbone(nn.Module):
    def __init__(self, dim, depth):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.adapters = nn.ModuleList()

    def add_adapters(self, rank):
        dim = self.norm.normalized_shape[0]
        for p in self.parameters():
            p.requires_grad_(False)
        for _ in self.blocks:
            pair = nn.ModuleDict({"down": nn.Linear(dim, rank, bias=False), "up": nn.Linear(rank, dim, bias=False)})
            nn.init.zeros_(pair["up"].weight)
            self.adapters.append(pair)

    def forward(self, x):
        for i, block in enumerate(self.blocks):
            h = block(x)
            if len(self.adapters):
                pair = self.adapters[i]
                h = h + pair["up"](pair["down"](x))
            x = x + F.gelu(h)
        return self.norm(x)


class StyleBatches:
    """Synthetic image embeddings and the embeddings of the same scene in the target style."""

    def __init__(self, dim, batch, seed, device):
        self.gen = torch.Generator().manual_seed(seed)
        self.mix = torch.randn(dim, dim, generator=torch.Generator().manual_seed(7)) / dim ** 0.5
        self.batch, self.dim, self.device = batch, dim, device

    def next(self):
        x = torch.randn(self.batch, self.dim, generator=self.gen)
        y = torch.tanh(x @ self.mix)
        return x.to(self.device), y.to(self.device)


def run_stage(name, model, sharded, optimizer, batches, steps, log_every):
    started = time.time()
    for step in range(1, steps + 1):
        sharded.unshard()
        x, y = batches.next()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        sharded.reduce_grads()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % log_every == 0:
            log.info("%s step %d loss %.4f (%.1f it/s)", name, step, loss.item(), step / (time.time() - started))


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
    shard_group = dist.new_group(list(range(args.world_size)))
    run_id = torch.randint(0, 10_000, (1,), device=device)
    dist.broadcast(run_id, src=0)
    log.info("run %d on %s", run_id.item(), device)

    torch.manual_seed(args.seed)
    model = Backbone(args.dim, args.depth).to(device)
    batches = StyleBatches(args.dim, args.batch_size, args.seed + rank, device)

    sharded = FlatSharded(model, shard_group)
    optimizer = torch.optim.AdamW(sharded.local_parameters(), lr=3e-4)
    run_stage("base", model, sharded, optimizer, batches, args.base_steps, args.log_every)
    sharded.unshard()

    model.add_adapters(args.lora_rank)
    model.to(device)
    sharded = FlatSharded(model, shard_group)
    optimizer = Prodigy(sharded.local_parameters(), d_coef=args.d_coef)
    log.info("adapter stage: %d trainable parameters in this model",
             sum(p.numel() for p in model.parameters() if p.requires_grad))
    run_stage("lora", model, sharded, optimizer, batches, args.lora_steps, args.log_every)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lora-rank", type=int, default=8)
    parser.add_argument("--d-coef", type=float, default=1.0)
    parser.add_argument("--base-steps", type=int, default=40)
    parser.add_argument("--lora-steps", type=int, default=20000)
    parser.add_argument("--log-every", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    mp.spawn(worker, args=(args, launch_env.free_port()), nprocs=args.world_size)


if __name__ == "__main__":
    main()
