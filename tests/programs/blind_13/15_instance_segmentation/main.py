"""Trains a small segmentation network on our own images."""
import argparse
import logging
import os
import shutil
import sys
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch.utils.data import DataLoader

from config import Config
from dataset import ShapesDataset
from model import SegNet
from runner import CheckpointHook, EpochBasedRunner, TextLoggerHook, WallTimeHook


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--work-dir", default=None)
    p.add_argument("--images", type=int, default=160)
    p.add_argument("--keep", action="store_true", help="keep a temporary work dir")
    return p.parse_args()


def main():
    args = parse_args()
    cfg = Config()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s - segdet - %(levelname)s - %(message)s")
    log = logging.getLogger("segdet")
    work_dir = args.work_dir or tempfile.mkdtemp(prefix="work_dir-")
    torch.set_num_threads(1)
    torch.manual_seed(cfg.seed)

    loader = DataLoader(
        ShapesDataset(args.images, cfg.image_size, cfg.seed),
        batch_size=cfg.samples_per_gpu,
        shuffle=True,
        num_workers=cfg.workers_per_gpu,
        persistent_workers=True,
    )
    model = SegNet(cfg.num_classes)
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr, momentum=0.9, weight_decay=1e-4)
    runner = EpochBasedRunner(model, optimizer, work_dir, cfg.total_epochs)
    runner.register_hook(CheckpointHook(interval=cfg.checkpoint_interval, max_keep=2))
    runner.register_hook(TextLoggerHook(interval=cfg.log_interval))
    runner.register_hook(WallTimeHook(cfg.wall_time))

    log.info("start running, host pid %d, work_dir: %s", os.getpid(), work_dir)
    log.info("workflow: [('train', 1)], max: %d epochs", cfg.total_epochs)
    runner.run(loader)
    log.info("done after %d iterations, %d epochs", runner.iter, runner.epoch)
    if args.work_dir is None and not args.keep:
        shutil.rmtree(work_dir, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
