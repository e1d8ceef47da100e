"""Land cover patches; two readers with a tile cache each feed a trainer."""
import argparse
import logging
import multiprocessing as mp
import time

import numpy as np
import torch
from torch import nn

from cache import TileCache
from optim import MomentumSgd

log = logging.getLogger("landcover")


class TileStore:
    def __init__(self, tiles, size):
        self.tiles, self.size = tiles, size

    def read(self, index):
        rng = np.random.default_rng(index)
        base = rng.random((self.size // 16, self.size // 16), dtype=np.float32)
        time.sleep(0.02)
        return np.kron(base, np.ones((16, 16), np.float32))


def run_reader(index, store, cache_mb, out, seed):
    rng = np.random.default_rng(seed + index)
    cache = TileCache(cache_mb * 2 ** 20)
    n = 0
    while True:
        batch = []
        for _ in range(8):
            tile = cache.get(int(rng.integers(0, store.tiles)), store.read)
            y, x = rng.integers(0, store.size - 32, 2)
            batch.append(tile[y:y + 32, x:x + 32].copy())
        out.put(np.stack(batch))
        n += 1
        if n % 50 == 0:
            log.info("reader %d: cache %d of %d MB, %d tiles, %d hits, %d misses, %d evicted", index,
                     cache.size >> 20, cache_mb, len(cache.tiles), cache.hits, cache.misses, cache.evicted)


def main(args):
    torch.set_num_threads(1)
    ctx = mp.get_context("fork")
    out = ctx.Queue(maxsize=4)
    store = TileStore(args.tiles, args.size)
    for i in range(args.readers):
        ctx.Process(target=run_reader, args=(i, store, args.cache_mb, out, 7), name=f"reader-{i}", daemon=True).start()
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 3, padding=1))
    opt = MomentumSgd(model.parameters(), 0.01)
    step = 0
    while True:
        x = torch.from_numpy(out.get()).unsqueeze(1)
        loss = nn.functional.mse_loss(model(x), x)
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        if step % 50 == 0:
            log.info("step %d loss %.5f", step, loss.item())
        time.sleep(args.step_time)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--readers", type=int, default=2)
    ap.add_argument("--tiles", type=int, default=5000)
    ap.add_argument("--size", type=int, default=256)
    ap.add_argument("--cache-mb", type=int, default=300)
    ap.add_argument("--step-time", type=float, default=0.12)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    main(ap.parse_args())
