import argparse
import logging
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from models import Detector, detection_loss


class Runner:
    def __init__(self, model, lr):
        self.model = DistributedDataParallel(model)
        self.optim = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        self.iter = 0

    def train(self, iters, batch):
        self.model.train()
        for self.iter in range(iters):
            images, labels = torch.rand(batch, 3, 96, 96), torch.randint(8, (batch,))
            loss = detection_loss(self.model(images), labels)
            self.optim.zero_grad()
            loss.backward()
            self.optim.step()
            if self.iter % 10 == 0:
                logging.info("iter %d loss %.4f", self.iter, loss.item())


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--iters", type=int, default=1500)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--lr", type=float, default=0.01)
    args = p.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank {os.environ['RANK']}: %(message)s")
    logging.info("start running, %d iterations", args.iters)
    Runner(Detector(), args.lr).train(args.iters, args.batch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
