import argparse
import logging
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from trainer import SaeTrainer


def worker(rank, cfg, init_file):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {rank}] %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{init_file}", rank=rank, world_size=cfg.nproc)
    SaeTrainer(cfg, rank, cfg.nproc).fit()
    dist.barrier()
    dist.destroy_process_group()


def parse_args():
    p = argparse.ArgumentParser(description="top-k sparse autoencoder on model activations")
    p.add_argument("--nproc", type=int, default=3)
    p.add_argument("--d-in", type=int, default=64)
    p.add_argument("--latents", type=int, default=256)
    p.add_argument("--k", type=int, default=16)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--lr", type=float, default=1e-2)
    p.add_argument("--steps", type=int, default=2000)
    p.add_argument("--save-every", type=int, default=40)
    p.add_argument("--out", default=None)
    return p.parse_args()


if __name__ == "__main__":
    cfg = parse_args()
    scratch = tempfile.mkdtemp(prefix="sae_")
    cfg.out = cfg.out or str(Path(scratch) / "checkpoints")
    mp.start_processes(worker, args=(cfg, f"{scratch}/rendezvous"), nprocs=cfg.nproc, start_method="fork")
