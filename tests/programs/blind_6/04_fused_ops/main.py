"""Quantised inference benchmark, one process per replica."""
import argparse
import logging
import os
import tempfile
import time

import torch
import torch.multiprocessing as mp

from ops_build import load_ops

log = logging.getLogger("bench")


class TableActivation(torch.nn.Module):
    def __init__(self, table):
        super().__init__()
        self.register_buffer("table", table.float())

    def forward(self, x):
        idx = ((x.clamp(-8, 8) + 8) / 16 * (self.table.numel() - 1)).long()
        return self.table[idx]


def replica(rank, build_dir, batches):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s replica-{rank} %(message)s", force=True)
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    log.info("loading ops")
    ops = load_ops(build_dir)
    net = torch.nn.Sequential(
        torch.nn.Linear(64, 128), TableActivation(ops["gelu_10"]), torch.nn.Linear(128, 10)
    ).eval()
    with torch.inference_mode():
        for i in range(batches):
            net(torch.randn(32, 64))
            if (i + 1) % 100 == 0:
                log.info("%d batches", i + 1)
            time.sleep(0.02)


def prebuild(build_dir, limit):
    builder = mp.get_context("fork").Process(target=load_ops, args=(build_dir,), name="prebuild")
    builder.start()
    builder.join(limit)
    if builder.is_alive():
        builder.kill()
        builder.join()
        log.warning("prebuild took longer than %ds, replicas will build on demand", limit)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--replicas", type=int, default=3)
    ap.add_argument("--batches", type=int, default=1000)
    ap.add_argument("--prebuild-limit", type=int, default=6)
    ap.add_argument("--build-dir", default=None)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s main %(message)s", force=True)
    torch.set_num_threads(1)
    build_dir = args.build_dir or os.path.join(tempfile.mkdtemp(prefix="fused_ops_"), "py311_cpu")
    prebuild(build_dir, args.prebuild_limit)
    mp.start_processes(
        replica, args=(build_dir, args.batches), nprocs=args.replicas, start_method="fork"
    )
    log.info("all replicas finished")


if __name__ == "__main__":
    main()
