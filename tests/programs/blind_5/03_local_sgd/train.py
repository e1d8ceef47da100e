import argparse
import logging
import time

import torch
import torch.distributed as dist
from torch import nn

from topology import Topology

log = logging.getLogger("localsgd")


class LocalSgd:
    def __init__(self, topo, args):
        self.topo, self.args = topo, args
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 1))
        self.gen = torch.Generator().manual_seed(topo.rank)

    def node_step(self):
        x = torch.randn(16, 20, generator=self.gen)
        loss = (self.model(x) - x.sum(1, keepdim=True)).pow(2).mean()
        self.model.zero_grad()
        loss.backward()
        for p in self.model.parameters():
            dist.all_reduce(p.grad, group=self.topo.node_group)
            with torch.no_grad():
                p -= self.args.lr * p.grad / self.topo.per_node
        return loss.item()

    def average_over_nodes(self):
        for p in self.model.parameters():
            if self.topo.is_leader:
                dist.all_reduce(p.data, group=self.topo.leader_group)
                p.data /= len(self.topo.leaders)
            dist.broadcast(p.data, src=self.topo.node_leader, group=self.topo.node_group)

    def run(self):
        for r in range(self.args.rounds):
            for _ in range(self.args.local_steps):
                loss = self.node_step()
            self.average_over_nodes()
            mean = torch.tensor(loss)
            dist.all_reduce(mean, group=self.topo.report_group)
            if self.topo.rank == 0:
                log.info("round %d loss %.4f", r, mean.item() / self.topo.world)
            time.sleep(0.1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--per-node", type=int, default=2)
    p.add_argument("--rounds", type=int, default=300)
    p.add_argument("--local-steps", type=int, default=8)
    p.add_argument("--lr", type=float, default=0.01)
    args = p.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s r{dist.get_rank()} %(message)s")
    log.info("joined, building groups")
    topo = Topology(args.per_node)
    log.info("groups ready")
    LocalSgd(topo, args).run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
