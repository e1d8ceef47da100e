import argparse
import logging
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from data import TrajectoryDataset, collate

torch.set_num_threads(1)
log = logging.getLogger("traj")


class SegmentNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 16)
        self.head = nn.Linear(16, 5)

    def forward(self, points, owner, n):
        h = torch.relu(self.fc(points))
        pooled = torch.zeros(n, 16).index_add(0, owner, h)
        return self.head(pooled)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--max-time", type=float, default=80)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    loader = DataLoader(TrajectoryDataset(), batch_size=args.batch_size, shuffle=True,
                        num_workers=args.workers, collate_fn=collate)
    net = SegmentNet()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    start = time.time()
    for step, (segments, owner, labels) in enumerate(loader):
        sizes = torch.tensor([len(s) for s in segments])
        idx = torch.stack(owner).repeat_interleave(sizes)
        loss = nn.functional.cross_entropy(net(torch.cat(segments), idx, len(labels)), labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 2 == 0:
            log.info("step %d loss %.3f  %.2f it/s", step, loss.item(), (step + 1) / (time.time() - start))
        if time.time() - start > args.max_time:
            break


if __name__ == "__main__":
    main()
