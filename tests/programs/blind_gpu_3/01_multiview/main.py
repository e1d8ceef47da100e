"""Multi-view depth training, data parallel over the scenes."""
import argparse
import logging
import os
import socket
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

from data import ImageBudgetBatchSampler, SceneDataset, collate_views

log = logging.getLogger("multiview")


class MultiViewNet(nn.Module):
    def __init__(self, dim=192, depth=3):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, dim // 4, 4, 4), nn.GELU(), nn.Conv2d(dim // 4, dim, 4, 4), nn.AdaptiveAvgPool2d(2)
        )
        layer = nn.TransformerEncoderLayer(dim, 4, 2 * dim, dropout=0.0, batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(dim, 1)

    def forward(self, images, scene_ids):
        tokens = self.stem(images).flatten(2).transpose(1, 2)
        n, t, d = tokens.shape
        same = scene_ids.repeat_interleave(t)
        mask = same[:, None] != same[None, :]
        out = self.blocks(tokens.reshape(1, n * t, d), mask=mask)
        return self.head(out.reshape(n, t, d).mean(1)).squeeze(-1)


class Trainer:
    def __init__(self, args, rank, world_size, device):
        self.args, self.rank, self.world_size, self.device = args, rank, world_size, device
        dataset = SceneDataset(args.num_scenes, args.image_size)
        self.sampler = ImageBudgetBatchSampler(
            len(dataset), rank, world_size, args.max_img_per_gpu, (args.min_images, args.max_images))
        self.loader = DataLoader(dataset, batch_sampler=self.sampler, collate_fn=collate_views)
        torch.manual_seed(0)
        model = MultiViewNet().to(device)
        self.model = DDP(model, device_ids=[0] if device == "cuda" else None)
        self.optim = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        self.stats_group = dist.new_group(backend="gloo")

    def train_epoch(self, epoch):
        self.sampler.set_epoch(epoch)
        total, seen, images_seen, started = 0.0, 0, 0, time.time()
        for step, (images, depth, scene_ids) in enumerate(self.loader):
            images, depth = images.to(self.device), depth.to(self.device)
            pred = self.model(images, scene_ids.to(self.device))
            loss = nn.functional.smooth_l1_loss(pred, depth)
            self.optim.zero_grad(set_to_none=True)
            loss.backward()
            self.optim.step()
            total += loss.item()
            seen += 1
            images_seen += len(depth)
            if step % self.args.log_every == 0:
                log.info("rank %d epoch %d step %d loss %.4f (%d images)",
                         self.rank, epoch, step, loss.item(), len(depth))
        return {"loss": total / seen, "images": images_seen, "seconds": time.time() - started}

    def fit(self):
        for epoch in range(self.args.epochs):
            mine = self.train_epoch(epoch)
            everyone = [None] * self.world_size
            dist.all_gather_object(everyone, mine, group=self.stats_group)
            if self.rank == 0:
                loss = sum(s["loss"] for s in everyone) / self.world_size
                log.info("epoch %d done: loss %.4f, %d images", epoch, loss, sum(s["images"] for s in everyone))


def limit_walltime(seconds):
    timer = threading.Timer(seconds, lambda: os._exit(0))
    timer.daemon = True
    timer.start()


def worker(rank, args, port):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    limit_walltime(args.time_limit)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), NCCL_HOSTID=f"node{rank}")
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.cuda.set_device(0)
    dist.init_process_group("nccl" if device == "cuda" else "gloo", rank=rank, world_size=args.world_size)
    Trainer(args, rank, args.world_size, device).fit()
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=2)
    p.add_argument("--num-scenes", type=int, default=160)
    p.add_argument("--image-size", type=int, default=64)
    p.add_argument("--max-img-per-gpu", type=int, default=24)
    p.add_argument("--min-images", type=int, default=2)
    p.add_argument("--max-images", type=int, default=24)
    p.add_argument("--epochs", type=int, default=200)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--log-every", type=int, default=10)
    p.add_argument("--time-limit", type=float, default=120)
    args = p.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, args=(args, port), nprocs=args.world_size)


if __name__ == "__main__":
    main()
