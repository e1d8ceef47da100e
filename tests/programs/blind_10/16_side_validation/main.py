"""Segmentation training; a second process validates the weights as they come."""
import argparse
import logging
import multiprocessing as mp
import time

import torch
from torch import nn

from validator import SegNet, validator_main

log = logging.getLogger("side")


class Trainer:
    def __init__(self, size, lr, outbox):
        self.size = size
        self.net = SegNet()
        self.optim = torch.optim.Adam(self.net.parameters(), lr=lr)
        self.outbox = outbox

    def step(self):
        x = torch.randn(2, 1, self.size, self.size)
        loss = nn.functional.binary_cross_entropy_with_logits(self.net(x), (x > 0.3).float())
        self.optim.zero_grad()
        loss.backward()
        self.optim.step()
        return loss.item()

    def send_weights(self, step):
        self.outbox.put((step, {k: v.numpy().copy() for k, v in self.net.state_dict().items()}))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--val-batch", type=int, default=8)
    parser.add_argument("--val-every", type=int, default=5)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seconds", type=float, default=130)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)
    weights = mp.Queue(maxsize=4)
    validator = mp.Process(target=validator_main, args=(weights, args.size, args.val_batch), name="validator")
    validator.start()
    trainer = Trainer(args.size, args.lr, weights)
    deadline, step = time.monotonic() + args.seconds, 0
    while time.monotonic() < deadline:
        loss = trainer.step()
        step += 1
        if step % args.val_every == 0:
            trainer.send_weights(step)
        if step % 100 == 0:
            log.info("step %d loss %.4f", step, loss)
        time.sleep(0.08)
    weights.put(None)
    validator.join()


if __name__ == "__main__":
    main()
