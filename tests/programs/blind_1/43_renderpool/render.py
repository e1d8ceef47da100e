"""Synthetic scenes; the renderer fragments memory, so each process only renders a few scenes."""
import argparse
import logging
import multiprocessing as mp
import os
import time

import torch

log = logging.getLogger("render")
_scene_graph = None


def init_renderer():
    global _scene_graph
    torch.set_num_threads(1)
    _scene_graph = torch.rand(200, 8)


def render(seed):
    g = torch.Generator().manual_seed(seed)
    img = torch.rand(3, 128, 128, generator=g)
    for row in _scene_graph[:40]:
        img = (img + row.mean()).frac()
        time.sleep(0.01)
    return seed, os.getpid(), round(img.mean().item(), 5)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--scenes", type=int, default=900)
    ap.add_argument("--processes", type=int, default=3)
    ap.add_argument("--scenes-per-process", type=int, default=8)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    pids, t0 = set(), time.time()
    with mp.Pool(args.processes, init_renderer, maxtasksperchild=args.scenes_per_process) as pool:
        for n, (seed, pid, mean) in enumerate(pool.imap_unordered(render, range(args.scenes)), 1):
            pids.add(pid)
            if n % 20 == 0:
                log.info("%d scenes, %d processes so far, %.1f scenes/s", n, len(pids), n / (time.time() - t0))


if __name__ == "__main__":
    main()
