"""Self-supervised pretraining with multi-crop augmentation."""
import argparse
import gc
import logging
import os
import time

import torch
from torch.utils.data import DataLoader

from augment import MultiCrop
from data import Frames, collate_crops
from model import StudentTeacher

log = logging.getLogger("pretrain")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--num-workers", type=int, default=2)
    p.add_argument("--max-iter", type=int, default=420)
    p.add_argument("--gc-freq", type=int, default=150)
    p.add_argument("--log-freq", type=int, default=10)
    p.add_argument("--lr", type=float, default=5e-4)
    p.add_argument("--iter-time", type=float, default=0.5, help="shortest time of an iteration, keeps shared hosts usable")
    return p.parse_args()


def do_train(args):
    model = StudentTeacher()
    optimizer = torch.optim.AdamW(model.student.parameters(), lr=args.lr)

    # the collector's pauses desynchronise the ranks: collect at fixed iterations instead
    gc.disable()
    gc.collect()

    loader = DataLoader(
        Frames(length=args.max_iter * args.batch_size, transform=MultiCrop()),
        batch_size=args.batch_size,
        num_workers=args.num_workers,
        collate_fn=collate_crops,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    t_log = time.monotonic()
    for it, crops in enumerate(loader):
        t0 = time.monotonic()
        if (it + 1) % args.gc_freq == 0:
            gc.collect()
        loss = model.loss(crops)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        model.update_teacher(0.996)
        time.sleep(max(0.0, args.iter_time - (time.monotonic() - t0)))
        if (it + 1) % args.log_freq == 0:
            now = time.monotonic()
            log.info("iter %d loss %.4f, %.3f s/iter", it + 1, loss.item(), (now - t_log) / args.log_freq)
            t_log = now
        if it + 1 >= args.max_iter:
            break


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [%(process)d] %(name)s: %(message)s")
    log.info("pid %d, %d loader workers", os.getpid(), args.num_workers)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    do_train(args)


if __name__ == "__main__":
    main()
