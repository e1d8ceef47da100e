import argparse
import json
import logging
import multiprocessing as mp
import os
import tempfile
import threading
import time

import numpy as np
import torch
from torch import nn

from feed import Channel, DataFeed, PartitionTask

log = logging.getLogger("infer")
FORMAT = "%(asctime)s %(processName)s %(name)s: %(message)s"


def start_clock(seconds):
    t = threading.Timer(seconds, os._exit, (0,))
    t.daemon = True
    t.start()


class DigitNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(32 * 49, 10),
        )

    def forward(self, x):
        return self.body(x)


def model_process(channel, args):
    """Long running process of an executor that owns the model."""
    logging.basicConfig(level=logging.INFO, format=FORMAT)
    start_clock(args.wall_time)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = DigitNet().eval()
    feed = DataFeed(channel, ["id", "image"])
    batches = 0
    while not feed.should_stop():
        batch, count = feed.next_batch(args.batch_size)
        if count == 0:
            break
        images = torch.from_numpy(np.stack(batch["image"])).float().unsqueeze(1) / 255.0
        with torch.no_grad():
            labels = net(images).argmax(1).tolist()
        feed.batch_results(list(zip(batch["id"], labels)))
        batches += 1
        if batches % 10 == 0:
            log.info("%d batches predicted", batches)
    log.info("done feeding")


class PartitionedImages:
    """Stands for the stored data set: files of rows of different lengths."""

    def __init__(self, sizes, seed=3):
        self.sizes = sizes
        self.rng = np.random.default_rng(seed)

    def read(self, index):
        n = self.sizes[index]
        images = self.rng.integers(0, 255, (n, 28, 28), dtype=np.uint8)
        base = sum(self.sizes[:index])
        return [(base + i, images[i]) for i in range(n)]


def executor_task(executor_id, channel, partitions, args, out_dir):
    logging.basicConfig(level=logging.INFO, format=FORMAT)
    start_clock(args.wall_time)
    data = PartitionedImages(args.sizes)
    task = PartitionTask(channel, executor_id)
    for index in partitions:
        rows = data.read(index)
        time.sleep(args.fetch_seconds)
        results = task.run(index, rows)
        path = os.path.join(out_dir, f"part-{index:05d}.json")
        with open(path, "w") as f:
            json.dump(results, f)
    task.close()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--executors", type=int, default=2)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--fetch-seconds", type=float, default=0.6)
    p.add_argument("--wall-time", type=float, default=130.0)
    args = p.parse_args()
    args.sizes = [1024, 1024, 2048, 1536, 1024, 2048, 1900, 1700, 1024, 1811, 2048, 1024]
    logging.basicConfig(level=logging.INFO, format=FORMAT)
    start_clock(args.wall_time)

    ctx = mp.get_context("spawn")
    out_dir = tempfile.mkdtemp(prefix="predictions_")
    procs, channels = [], [Channel(ctx) for _ in range(args.executors)]
    for e, channel in enumerate(channels):
        mine = list(range(e, len(args.sizes), args.executors))
        procs.append(ctx.Process(target=model_process, args=(channel, args), name=f"model-{e}"))
        procs.append(ctx.Process(target=executor_task, args=(e, channel, mine, args, out_dir), name=f"task-{e}"))
    for pr in procs:
        pr.start()
    log.info("started %d executors, predictions go to %s", args.executors, out_dir)
    for pr in procs:
        pr.join()
    log.info("all %d partitions predicted", len(args.sizes))


if __name__ == "__main__":
    main()
