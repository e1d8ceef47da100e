import argparse
import logging
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from sequences import TrackingSet

torch.set_num_threads(1)
log = logging.getLogger("ltr")


class LTRTrainer:
    def __init__(self, args):
        self.args = args
        self.train_loader = DataLoader(TrackingSet(480, 10), batch_size=8, shuffle=True,
                                       num_workers=2, persistent_workers=True)
        self.val = TrackingSet(60, 0)
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-3)

    def train_epoch(self):
        total = 0.0
        for x, y in self.train_loader:
            loss = nn.functional.smooth_l1_loss(self.net(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += loss.item()
        return total / len(self.train_loader)

    @torch.no_grad()
    def validate(self):
        iou = []
        for i in range(len(self.val)):
            x, y = self.val[i]
            box = self.net(x)
            for _ in range(20):
                box = box + 0.05 * (y - box)
                time.sleep(0.005)
            iou.append(float((box - y).abs().mean()))
        return sum(iou) / len(iou)

    def run(self):
        start, epoch = time.time(), 0
        while time.time() - start < self.args.max_time:
            loss = self.train_epoch()
            log.info("epoch %d train loss %.4f", epoch, loss)
            log.info("epoch %d val error %.4f", epoch, self.validate())
            epoch += 1


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--max-time", type=float, default=80)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    LTRTrainer(ap.parse_args()).run()
