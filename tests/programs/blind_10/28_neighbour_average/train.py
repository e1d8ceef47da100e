import argparse
import logging
import os
import time

import torch
import torch.distributed as dist
from torch import nn

from mixing import RingMixer

log = logging.getLogger("gossip")


class LocalTrainer:
    def __init__(self, rank, lr):
        torch.manual_seed(rank)
        self.x = torch.randn(512, 20)
        self.y = self.x.sin().sum(1, keepdim=True)
        self.model = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 1))
        self.lr = lr

    def steps(self, count):
        for _ in range(count):
            pick = torch.randint(0, len(self.x), (32,))
            loss = nn.functional.mse_loss(self.model(self.x[pick]), self.y[pick])
            self.model.zero_grad()
            loss.backward()
            with torch.no_grad():
                for p in self.model.parameters():
                    p.sub_(p.grad, alpha=self.lr)
            time.sleep(0.01)
        return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--local-steps", type=int, default=40)
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    trainer = LocalTrainer(rank, args.lr)
    mixer = RingMixer(trainer.model)
    for number in range(args.rounds):
        loss = trainer.steps(args.local_steps)
        log.info("rank %d round %d local loss %.4f", rank, number, loss)
        mixer.mix()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
