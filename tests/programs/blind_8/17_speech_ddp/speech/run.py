import logging

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from .evaluation import Evaluator

log = logging.getLogger("speech")


def build_model():
    return nn.Sequential(
        nn.Linear(80, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 2)
    )


class SpeechTrainer:
    def __init__(self, rank, args):
        self.rank = rank
        self.args = args
        self.model = DistributedDataParallel(build_model())
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.evaluator = Evaluator()

    def step(self, gen):
        x = torch.randn(256, 80, generator=gen)
        y = (x.sum(-1) > 0).long()
        self.opt.zero_grad()
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.opt.step()
        return loss.item()

    def fit(self):
        gen = torch.Generator().manual_seed(self.rank)
        for step in range(1, self.args.steps + 1):
            loss = self.step(gen)
            if self.rank == 0 and step % 10 == 0:
                log.info("step %d loss %.4f", step, loss)
            if step % self.args.eval_every == 0:
                if self.rank == 0:
                    log.info("eval accuracy %.3f", self.evaluator.evaluate(self.model))
                dist.barrier()


def run(rank, args, port):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=args.world_size)
    SpeechTrainer(rank, args).fit()
    dist.destroy_process_group()
