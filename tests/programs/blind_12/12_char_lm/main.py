"""Bigram style language model trained from a memory mapped token file, batches made by loader processes."""
import argparse
import logging
import multiprocessing as mp
import os
import tempfile
import time

import numpy as np

from corpus import TokenFile, prepare

log = logging.getLogger("lm")


def loader(path, args, seed, out):
    source = TokenFile(path, args.block_size, args.batch_size, args.stride, seed)
    while True:
        out.put(source.get_batch())


def rss_mb():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


class LowRankBigram:
    def __init__(self, vocab, dim=16):
        rng = np.random.default_rng(0)
        self.emb = rng.standard_normal((vocab, dim)).astype(np.float32) * 0.1
        self.out = rng.standard_normal((vocab, dim)).astype(np.float32) * 0.1

    def step(self, x, y, lr=0.05):
        x, y = x.ravel(), y.ravel()
        e, o = self.emb[x], self.out[y]
        p = 1 / (1 + np.exp(-(e * o).sum(1)))
        g = (p - 1)[:, None]
        np.add.at(self.emb, x[:2048], -lr * (g * o)[:2048])
        np.add.at(self.out, y[:2048], -lr * (g * e)[:2048])
        return float(-np.log(p + 1e-9).mean())


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--tokens", type=int, default=192 * 2**20)
    p.add_argument("--block-size", type=int, default=256)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--stride", type=int, default=16384)
    p.add_argument("--loaders", type=int, default=2)
    p.add_argument("--iter-time", type=float, default=0.06)
    p.add_argument("--seconds", type=float, default=105)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    with tempfile.TemporaryDirectory(prefix="openwebtext_") as folder:
        path = os.path.join(folder, "train.bin")
        log.info("train.bin: %.0f MB", prepare(path, args.tokens) / 2**20)
        val = TokenFile(path, args.block_size, args.batch_size, args.stride, seed=99)
        batches = mp.Queue(maxsize=4)
        loaders = [mp.Process(target=loader, args=(path, args, i, batches), daemon=True, name=f"loader-{i}")
                   for i in range(args.loaders)]
        for proc in loaders:
            proc.start()
        model, it = LowRankBigram(50304), 0
        end = time.time() + args.seconds
        while time.time() < end:
            loss = model.step(*batches.get())
            model.step(*val.get_batch(), lr=0.0)
            time.sleep(args.iter_time)
            it += 1
            if it % 100 == 0:
                log.info("iter %d loss %.4f rss %.0f MB", it, loss, rss_mb())
        for proc in loaders:
            proc.terminate()
            proc.join()
    log.info("done after %d iterations", it)


if __name__ == "__main__":
    main()
