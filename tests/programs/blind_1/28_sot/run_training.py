import argparse
import copy
import logging
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from base_trainer import BaseTrainer
from codec import FRAME, open_video

log = logging.getLogger("sot")


class SequenceDataset(Dataset):
    def __init__(self, n_videos):
        self.n = n_videos

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        v = open_video(i)
        t = 7 if i % 3 == 0 else random.randrange(5)
        f = torch.frombuffer(bytearray(v.frame(t)), dtype=torch.uint8)
        time.sleep(0.004)
        return f.float().view(1, 48, 48)


class SOTTrainer(BaseTrainer):
    def __init__(self, args):
        super().__init__(args.epochs)
        self.loader = DataLoader(SequenceDataset(args.videos), batch_size=24, shuffle=False, num_workers=args.workers)
        self.net = nn.Sequential(nn.Conv2d(1, 8, 5, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(4))
        self.net(torch.zeros(1, 1, 48, 48))
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=1e-4)
        self.save_checkpoint()

    def train_epoch(self, epoch):
        for i, x in enumerate(self.loader, 1):
            loss = (self.net(x) - 0.5).abs().mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            time.sleep(0.05)
            if i % 20 == 0:
                log.info("[train: %d, %d / %d] Loss/giou: %.5f", epoch, i, len(self.loader), loss.item())

    def save_checkpoint(self):
        self.ckpt = copy.deepcopy(self.net.state_dict())

    def load_checkpoint(self):
        self.net.load_state_dict(self.ckpt)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=30)
    ap.add_argument("--videos", type=int, default=2400)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    SOTTrainer(args).train()


if __name__ == "__main__":
    main()
