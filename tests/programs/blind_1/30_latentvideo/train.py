import argparse
import logging
import os
import socket
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader

from latents import LatentVideos

log = logging.getLogger("train")


class DiT(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(16, 32, 1), nn.GELU(), nn.Conv2d(32, 16, 1))

    def forward(self, z):
        return self.net(z)


def load_text_encoder(rank):
    """The text encoder is only needed where captions are embedded."""
    if rank == 0:
        return None
    log.info("loading text encoder")
    time.sleep(6)
    return nn.Embedding(1000, 16)


def average_gradients(model, world):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world


def run(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank {rank}: %(message)s")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.gpus)
    text = load_text_encoder(rank)
    data = LatentVideos(args.data_root, rank, args.gpus)
    log.info("%d files, text encoder: %s", len(data.files), text is not None)
    model = DiT()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step, z in enumerate(DataLoader(data, batch_size=8)):
        noise = torch.randn_like(z)
        loss = (model(z + noise) - noise).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        average_gradients(model, args.gpus)
        opt.step()
        if rank == 0 and step % 10 == 0:
            log.info("step %d loss %.4f", step, loss.item())
        time.sleep(0.1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--gpus", type=int, default=3)
    ap.add_argument("--data-root", default=None)
    args = ap.parse_args()
    args.data_root = args.data_root or tempfile.mkdtemp(prefix="latents_")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.start_processes(run, args=(args, port), nprocs=args.gpus, start_method="fork")


if __name__ == "__main__":
    main()
