"""A runner: serves frames of the pool until it has done its share and is recycled."""
import argparse
import logging
import sys
import time

import torch
from torch import nn

from frames import FramePool

log = logging.getLogger("runner")


def build_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)
    ).eval()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pool")
    parser.add_argument("--slots", type=int)
    parser.add_argument("--size", type=int)
    parser.add_argument("--lifetime", type=float, help="seconds after which the runner leaves, between two frames")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s[%(process)d] %(message)s")
    torch.set_num_threads(1)
    pool = FramePool.attach(args.pool, args.slots, args.size)
    model = build_model()
    started, served = time.monotonic(), 0
    print("ready", flush=True)
    for line in sys.stdin:
        slot = int(line)
        with torch.inference_mode():
            label = model(torch.from_numpy(pool.frames[slot : slot + 1])).argmax(1).item()
        served += 1
        last = time.monotonic() - started > args.lifetime
        print(f"{slot} {label}", "last" if last else "more", flush=True)
        if last:
            break
    log.info("leaving after %d frames", served)
    pool.close()


if __name__ == "__main__":
    main()
