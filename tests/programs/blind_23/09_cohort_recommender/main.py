"""Train a recommender on click logs. Every rank reads the logs of one group of countries."""
import argparse
import datetime
import logging
import os
import socket
import sys
import time

import torch._dynamo  # before the fork: once instead of once per rank
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP

from clicks import COHORTS, ClickLog
from twotower import TwoTower

log = logging.getLogger("rec")


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--users", type=int, default=4000)
    p.add_argument("--items", type=int, default=1500)
    p.add_argument("--dim", type=int, default=24)
    p.add_argument("--batch-size", type=int, default=256)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--log-every", type=int, default=15)
    p.add_argument("--check-every", type=int, default=60)
    p.add_argument("--publish-every", type=int, default=90)
    p.add_argument("--arrival", type=float, default=0.15, help="seconds between two batches of the log stream")
    p.add_argument("--train-seconds", type=float, default=120.0)
    p.add_argument("--seed", type=int, default=31)
    return p.parse_args()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Running:
    def __init__(self, decay=0.9):
        self.decay = decay
        self.value = None

    def add(self, x):
        self.value = x if self.value is None else self.decay * self.value + (1 - self.decay) * x
        return self.value


class CohortTrainer:
    def __init__(self, rank, world, args):
        self.rank, self.world, self.args = rank, world, args
        torch.manual_seed(args.seed + rank)
        self.model = DDP(TwoTower(args.users, args.items, args.dim))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.clicks = ClickLog(COHORTS[rank], args.users, args.items, args.batch_size, seed=args.seed + rank)
        self.running = Running()

    def step(self):
        user, item, label = self.clicks.next()
        self.optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(self.model(user, item), label)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def check_replicas(self, step):
        """All ranks must hold the same model."""
        total = torch.stack([p.detach().double().sum() for p in self.model.parameters()])
        low, high = total.clone(), total.clone()
        dist.all_reduce(low, op=dist.ReduceOp.MIN)
        dist.all_reduce(high, op=dist.ReduceOp.MAX)
        if not torch.equal(low, high):
            raise RuntimeError(f"replicas differ at step {step}: {(high - low).tolist()}")

    def publish(self, step):
        """The popularity list for the front end; every cohort has its own."""
        scores = self.model.module.item_bias.weight.detach().flatten()
        top = scores.topk(5).indices.tolist()
        log.info("step %d list for %s: %s", step, COHORTS[self.rank].name, top)

    def fit(self):
        begin = time.monotonic()
        step, over = 0, torch.zeros(1)
        while not over.item():
            step += 1
            loss = self.running.add(self.step())
            if step % self.args.log_every == 0:
                log.info("step %d cohort %s loss %.3f, %.1f steps/s", step, COHORTS[self.rank].name, loss,
                         step / (time.monotonic() - begin))
                over.fill_(float(time.monotonic() - begin > self.args.train_seconds))
                dist.all_reduce(over, op=dist.ReduceOp.MAX)
            if step % self.args.check_every == 0:
                self.check_replicas(step)
            if step % self.args.publish_every == 0 and self.rank == 0:
                self.publish(step)
            time.sleep(self.args.arrival)
        self.check_replicas(step)
        if self.rank == 0:
            log.info("done after %d steps", step)


def worker(rank, world, port, args):
    logging.basicConfig(level=logging.INFO, stream=sys.stdout,
                        format=f"%(asctime)s rank{rank} %(levelname)s %(message)s")
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=datetime.timedelta(seconds=60))
    CohortTrainer(rank, world, args).fit()
    dist.destroy_process_group()


def main():
    args = parse_args()
    world = len(COHORTS)
    mp.start_processes(worker, args=(world, free_port(), args), nprocs=world, start_method="fork")


if __name__ == "__main__":
    main()
