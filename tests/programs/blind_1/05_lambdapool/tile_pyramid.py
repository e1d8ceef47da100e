"""Denoise all levels of an image pyramid, tile by tile."""
import argparse
import logging
import time

import torch
import torch.nn.functional as F

from lambda_pool import Pool

log = logging.getLogger("pyramid")


def denoise_tile(raw):
    torch.set_num_threads(1)
    side = int(len(raw) ** 0.5)
    t = torch.frombuffer(bytearray(raw), dtype=torch.uint8).float().view(1, 1, side, side)
    for _ in range(3):
        t = F.avg_pool2d(F.pad(t, (1, 1, 1, 1), mode="replicate"), 3, 1)
    time.sleep(0.15)
    return bytes(t.clamp(0, 255).byte().flatten().tolist())


def make_tiles(level, count):
    side = 32 << level
    g = torch.Generator().manual_seed(level)
    return [bytes(torch.randint(0, 256, (side * side,), generator=g).tolist()) for _ in range(count)]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--levels", type=int, default=6)
    ap.add_argument("--tiles", type=int, default=36)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    pool = Pool(args.workers)
    for level in range(args.levels):
        tiles = make_tiles(level, args.tiles)
        t0 = time.time()
        out = pool.map(denoise_tile, tiles)
        log.info("level %d: %d tiles of %d bytes in %.1fs", level, len(out), len(out[0]), time.time() - t0)


if __name__ == "__main__":
    main()
