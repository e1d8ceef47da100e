import argparse
import logging
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from metrics import ConfusionTracker

torch.set_num_threads(1)


def train(args, rank):
    log = logging.getLogger(f"rank{rank}")
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, args.classes)))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    tracker = ConfusionTracker(args.classes)
    start, step = time.time(), 0
    while True:
        x = torch.randn(64, 32)
        y = torch.randint(0, args.classes, (64,))
        out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 0:
            tracker.update(out.argmax(1).tolist(), y.tolist())
            f1 = tracker.macro_f1()
            if step % 5 == 0:
                log.info("step %d loss %.3f f1 %.4f %.2f it/s", step, loss.item(), f1,
                         (step + 1) / (time.time() - start))
        step += 1
        stop = torch.tensor([float(time.time() - start > args.max_time)])
        dist.all_reduce(stop)
        if stop.item():
            break


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--classes", type=int, default=1000)
    ap.add_argument("--max-time", type=float, default=80)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    dist.init_process_group("gloo")
    train(args, dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
