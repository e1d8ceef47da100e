import argparse
import logging
import multiprocessing as mp
import time

import torch

from guard import MemoryGuard

log = logging.getLogger("tiles")


def segment_tile(tile):
    torch.set_num_threads(1)
    number, scale = tile
    gen = torch.Generator().manual_seed(number)
    layers = []
    for _ in range(scale):
        layers.append(torch.rand(1024, 1024, generator=gen))
        time.sleep(0.02)
    mask = sum(layer[::16, ::16] for layer in layers) / scale
    return number, float((mask > 0.5).float().mean())


class Mosaic:
    def __init__(self, args):
        self.args = args
        self.tiles = [(n, 160 if n == args.large_tile else 6) for n in range(args.tiles)]

    def run(self):
        done = {}
        with mp.Pool(self.args.workers) as pool:
            MemoryGuard(self.args.limit_mib, lambda: [w.pid for w in list(pool._pool)]).start()
            for number, share in pool.imap_unordered(segment_tile, self.tiles):
                done[number] = share
                if len(done) % 10 == 0:
                    log.info("%d/%d tiles", len(done), len(self.tiles))
        log.info("mosaic finished, mean coverage %.3f", sum(done.values()) / len(done))


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--tiles", type=int, default=60)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--limit-mib", type=int, default=400)
    p.add_argument("--large-tile", type=int, default=14)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    Mosaic(p.parse_args()).run()
