import logging
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from preemption import PreemptionHandler

log = logging.getLogger("trainer")


class Trainer:
    def __init__(self, args, preemption, workdir):
        self.args, self.preemption, self.workdir = args, preemption, workdir
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(0)
        self.model = DistributedDataParallel(
            nn.Sequential(nn.Conv1d(4, 16, 5), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 60, 128), nn.ReLU(), nn.Linear(128, 4))
        )
        self.optim = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.gen = torch.Generator().manual_seed(self.rank)
        self.step = 0

    def batch(self):
        x = torch.randn(16, 4, 64, generator=self.gen)
        return x, x.mean(-1).argmax(-1)

    def training_step(self):
        x, y = self.batch()
        loss = nn.functional.cross_entropy(self.model(x), y)
        self.optim.zero_grad()
        loss.backward()
        self.optim.step()
        self.step += 1
        return loss.item()

    def save(self, tag):
        path = os.path.join(self.workdir, f"{tag}-rank{self.rank}.pt")
        torch.save({"step": self.step, "model": self.model.module.state_dict(), "optim": self.optim.state_dict()}, path)

    def fit(self):
        while self.step < self.args.max_steps:
            loss = self.training_step()
            time.sleep(self.args.data_time)
            if self.step % 20 == 0 and self.rank == 0:
                log.info("step %d loss %.3f", self.step, loss)
            if self.preemption.requested:
                log.info("rank %d: saving at step %d before the node goes away", self.rank, self.step)
                self.save("preempted")
                self.preemption.drain(self.rank, self.world_size)
                return "preempted"
        self.save("final")
        return "finished"


def rank_main(rank, args, port, workdir):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(minutes=30))
    preemption = PreemptionHandler(store)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=args.world_size, timeout=timedelta(minutes=30))
    outcome = Trainer(args, preemption, workdir).fit()
    log.info("rank %d: %s", rank, outcome)
    dist.destroy_process_group()
