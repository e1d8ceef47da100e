"""Off-policy actor-critic over several GPUs (DDP), with summaries for tensorboard."""
import argparse
import logging
import os
import socket
import tempfile
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

from summary import SummaryWriter, summarize_variables

log = logging.getLogger("alg")


class ActorCritic(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden):
        super().__init__()
        self.torso = nn.Sequential(nn.Linear(obs_dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.actor = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, act_dim))
        self.critic = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, obs):
        h = self.torso(obs)
        return self.actor(h), self.critic(h).squeeze(-1)


class ReplayShard:
    def __init__(self, obs_dim, act_dim, size, rank, device):
        gen = torch.Generator().manual_seed(rank)
        self.obs = torch.randn(size, obs_dim, generator=gen).to(device)
        self.act = torch.randint(0, act_dim, (size,), generator=gen).to(device)
        self.ret = torch.randn(size, generator=gen).to(device)

    def sample(self, n):
        idx = torch.randint(0, len(self.ret), (n,), device=self.ret.device)
        return self.obs[idx], self.act[idx], self.ret[idx]


class Trainer:
    def __init__(self, args, rank, device):
        self.args, self.rank, self.device = args, rank, device
        torch.manual_seed(args.seed)
        net = ActorCritic(args.obs_dim, args.act_dim, args.hidden).to(device)
        self.model = DDP(net, device_ids=[0] if device == "cuda" else None)
        self.optim = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.replay = ReplayShard(args.obs_dim, args.act_dim, args.replay_size, rank, device)
        self.writer = SummaryWriter(tempfile.mkdtemp(prefix="alg_tb_")) if rank == 0 else None

    def train_iter(self, it):
        obs, act, ret = self.replay.sample(self.args.batch)
        logits, value = self.model(obs)
        adv = (ret - value).detach()
        logp = torch.log_softmax(logits, -1).gather(1, act[:, None]).squeeze(1)
        loss = -(logp * adv).mean() + 0.5 * nn.functional.mse_loss(value, ret)
        self.optim.zero_grad(set_to_none=True)
        loss.backward()
        self.optim.step()
        if self.writer is not None and it % self.args.summary_interval == 0:
            self.writer.scalar("loss", loss.item())
            summarize_variables(self.writer, self.model.module)
            self.writer.flush(it)
        return loss.item()

    def train(self):
        tick = time.time()
        for it in range(self.args.iterations):
            loss = self.train_iter(it)
            if it % self.args.log_every == 0:
                now = time.time()
                log.info("rank %d iter %d loss %.4f %.1f s", self.rank, it, loss, now - tick)
                tick = now


def limit_walltime(seconds):
    timer = threading.Timer(seconds, lambda: os._exit(0))
    timer.daemon = True
    timer.start()


def worker(rank, args, port):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    limit_walltime(args.time_limit)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), NCCL_HOSTID=f"node{rank}")
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.cuda.set_device(0)
    dist.init_process_group("nccl" if device == "cuda" else "gloo", rank=rank, world_size=args.world_size)
    Trainer(args, rank, device).train()
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=3)
    p.add_argument("--obs-dim", type=int, default=256)
    p.add_argument("--act-dim", type=int, default=18)
    p.add_argument("--hidden", type=int, default=1024)
    p.add_argument("--replay-size", type=int, default=20000)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--lr", type=float, default=1e-4)
    p.add_argument("--iterations", type=int, default=1000000)
    p.add_argument("--summary-interval", type=int, default=1)
    p.add_argument("--log-every", type=int, default=10)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--time-limit", type=float, default=120)
    args = p.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, args=(args, port), nprocs=args.world_size)


if __name__ == "__main__":
    main()
