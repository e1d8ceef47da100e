import argparse
import logging
import os
import random
import socket
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from responses import PromptPool, reward, sample_groups

log = logging.getLogger("grpo")


def parse_args():
    p = argparse.ArgumentParser(description="GRPO on a small summariser")
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--device", default="cuda:0")
    p.add_argument("--backend", default="nccl")
    p.add_argument("--prompts", type=int, default=24)
    p.add_argument("--group-size", type=int, default=4)
    p.add_argument("--steps", type=int, default=4000)
    p.add_argument("--warmup-steps", type=int, default=30, help="steps on the easiest tenth of the prompts")
    p.add_argument("--max-tokens", type=int, default=256, help="tokens of an answer used in the loss")
    return p.parse_args()


class TinyLM(nn.Module):
    def __init__(self, vocab=900, dim=128):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens):
        h, _ = self.rnn(self.embed(tokens))
        return self.head(h).log_softmax(dim=-1)


def pad(rollouts, max_tokens, device):
    width = min(max_tokens, max(len(r) for r in rollouts))
    out = torch.zeros(len(rollouts), width, dtype=torch.long)
    for i, r in enumerate(rollouts):
        r = r[:width]
        out[i, : len(r)] = torch.tensor(r)
    return out.to(device)


def scatter(rollouts, rank, world_size):
    share = len(rollouts) // world_size
    return rollouts[rank * share : (rank + 1) * share]


def advantages(rewards, group_size, device):
    grouped = torch.tensor(rewards).view(-1, group_size)
    normed = (grouped - grouped.mean(1, keepdim=True)) / (grouped.std(1, keepdim=True) + 1e-4)
    return normed.view(-1).to(device)


def train(rank, args):
    device = torch.device(args.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.manual_seed(0)
    model = DDP(TinyLM().to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
    pool, rng = PromptPool(), random.Random(17)
    reference = [rng.randrange(900) for _ in range(400)]
    for step in range(args.steps):
        started = time.time()
        lengths = pool.draw(args.prompts, hardest=0.1 if step < args.warmup_steps else 1.0)
        rollouts = scatter(sample_groups(lengths, args.group_size, rng), rank, args.ranks)
        rewards = [reward(r, reference) for r in rollouts]
        tokens = pad(rollouts, args.max_tokens, device)
        logp = model(tokens)[:, :-1].gather(-1, tokens[:, 1:].unsqueeze(-1)).squeeze(-1)
        loss = -(advantages(rewards, args.group_size, device) * logp.mean(dim=1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.item()
        if rank == 0 and (step % 10 == 0 or step > args.warmup_steps):
            log.info(
                "step %d loss %.4f reward %.3f time %.2fs", step, value, sum(rewards) / len(rewards), time.time() - started
            )


def entry(rank, args, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    os.environ["NCCL_SOCKET_IFNAME"] = "lo"
    os.environ["NCCL_HOSTID"] = f"host{rank}"
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group(args.backend, rank=rank, world_size=args.ranks)
    try:
        train(rank, args)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    arguments = parse_args()
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        free = sock.getsockname()[1]
    mp.spawn(entry, args=(arguments, free), nprocs=arguments.ranks)
