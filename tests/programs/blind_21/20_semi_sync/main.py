"""Train a character model on three unequal hosts with rounds of local steps."""
import argparse
import logging
import os
import socket
import tempfile
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from diloco import OuterOptimizer, RoundClock

log = logging.getLogger("charlm")
HOSTS = {0: ("a100-east", 0.02), 1: ("t4-west", 0.12), 2: ("edge-box", 0.45)}


class Shard:
    """Every host has the text of its own region, read over links of different speed."""

    def __init__(self, rank, latency, size=200_000, vocab=64):
        gen = torch.Generator().manual_seed(rank)
        base = torch.arange(size) * (3 + 2 * rank) % vocab
        noise = torch.randint(0, vocab, (size,), generator=gen)
        self.data = torch.where(torch.rand(size, generator=gen) < 0.15, noise, base)
        self.gen, self.latency = gen, latency

    def batch(self, size, length=32):
        time.sleep(self.latency)
        at = torch.randint(0, len(self.data) - length - 1, (size,), generator=self.gen)
        window = torch.stack([self.data[i:i + length + 1] for i in at.tolist()])
        return window[:, :-1], window[:, 1:]


class CharModel(nn.Module):
    def __init__(self, vocab=64, dim=96):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, x):
        return self.out(self.rnn(self.embed(x))[0])


def time_limit(until):
    def expire():
        time.sleep(max(0.0, until - time.time()))
        os._exit(0)

    threading.Thread(target=expire, daemon=True).start()


def evaluate(model, shard):
    model.eval()
    with torch.no_grad():
        x, y = shard.batch(64)
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
    model.train()
    value = torch.tensor([loss.item()])
    dist.all_reduce(value)
    return value.item() / dist.get_world_size()


def train(rank, args, port, folder):
    time_limit(args.until)
    name, latency = HOSTS[rank]
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [{name}] %(message)s")
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=len(HOSTS), timeout=timedelta(minutes=3))
    torch.manual_seed(0)
    model = CharModel()
    inner = torch.optim.AdamW(model.parameters(), lr=2e-3)
    outer = OuterOptimizer(model)
    shard = Shard(rank, latency)
    total_local, clock = 0, RoundClock(args.round_seconds)
    for round_no in range(args.rounds):
        local = 0
        clock.restart()
        while not clock.over() or local == 0:
            x, y = shard.batch(args.batch_size)
            loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
            inner.zero_grad()
            loss.backward()
            inner.step()
            local += 1
        drift = outer.drift()
        steps = outer.sync(local)
        total_local += local
        value = evaluate(model, shard)
        log.info("round %d: %d local steps (%d so far, %d together), drift %.3f, last loss %.3f, eval %.4f",
                 round_no, local, total_local, steps, drift, loss.item(), value)
        if rank == 0:
            torch.save({"round": round_no, "model": model.state_dict()}, os.path.join(folder, "latest.pt"))
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rounds", type=int, default=13)
    p.add_argument("--round-seconds", type=float, default=8.0)
    p.add_argument("--batch-size", type=int, default=16)
    args = p.parse_args()
    args.until = time.time() + args.rounds * (args.round_seconds + 1)
    time_limit(args.until)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="charlm_") as folder:
        mp.start_processes(train, args=(args, port, folder), nprocs=len(HOSTS), start_method="fork")


if __name__ == "__main__":
    main()
