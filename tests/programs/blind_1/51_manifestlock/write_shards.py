"""Packs a corpus into shards: four packers, one manifest."""
import argparse
import logging
import multiprocessing as mp
import os
import tempfile
import time

import torch

from manifest import Manifest

log = logging.getLogger("pack")


def packer(idx, n, folder):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s packer {idx} %(message)s")
    torch.set_num_threads(1)
    man = Manifest(os.path.join(folder, "manifest.json"))
    for k in range(n):
        toks = torch.randint(0, 50_000, (64, 1024))
        time.sleep(0.5)
        path = os.path.join(folder, f"shard-{idx}-{k:04d}.pt")
        torch.save(toks.int(), path)
        t0 = time.time()
        total = man.append({"path": path, "tokens": toks.numel()})
        log.info("shard %d, manifest has %d rows, waited %.1fs", k, total, time.time() - t0)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--packers", type=int, default=4)
    ap.add_argument("--shards", type=int, default=25)
    args = ap.parse_args()
    with tempfile.TemporaryDirectory(prefix="shards_") as folder:
        ps = [mp.Process(target=packer, args=(i, args.shards, folder), name=f"packer-{i}") for i in range(args.packers)]
        for p in ps:
            p.start()
        for p in ps:
            p.join()


if __name__ == "__main__":
    main()
