import logging
import os
import time

import torch
import torch.distributed as dist
from torch import nn

from groups import Topology

log = logging.getLogger("acgroups.worker")


class Worker:
    def __init__(self, rank, placement, sync_every, publish_every):
        self.rank = rank
        self.placement = placement
        self.sync_every = sync_every
        self.publish_every = publish_every
        self.updates = 0
        self.frames = 0
        self.next_publish = publish_every
        torch.manual_seed(0)
        self.net = nn.Linear(24, 4 if placement.role == "actor" else 1)

    def update(self):
        loss = self.net(torch.randn(self.placement.envs, 24)).pow(2).mean()
        self.net.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in self.net.parameters():
                p.sub_(p.grad, alpha=0.01)
        self.updates += 1
        self.frames += self.placement.envs
        time.sleep(0.02)
        return loss.item()

    def sync_role(self):
        for p in self.net.parameters():
            dist.all_reduce(p.data, group=self.placement.group)
            p.data /= len(self.placement.ranks)

    def publish(self):
        scores = torch.zeros(dist.get_world_size())
        scores[self.rank] = self.net.weight.detach().norm()
        dist.all_reduce(scores)
        return scores

    def run(self, total_updates):
        while self.updates < total_updates:
            loss = self.update()
            if self.updates % self.sync_every == 0:
                self.sync_role()
            if self.frames >= self.next_publish:
                self.next_publish += self.publish_every
                scores = self.publish()
                log.info("rank %d update %d loss %.3f scores %s", self.rank, self.updates, loss,
                         [round(v, 3) for v in scores.tolist()])


def run_rank(rank, args, port):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=args.world)
    placement = Topology(args.world, args.actors, args.envs).place(rank)
    Worker(rank, placement, args.sync_every, args.publish_every).run(args.updates)
    dist.barrier()
    dist.destroy_process_group()
