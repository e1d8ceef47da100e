"""Build fingerprint indexes of a recording collection, one process per shard."""
import argparse
import logging
import multiprocessing as mp
import pathlib
import tempfile
import time

import numpy as np
import torch

from audio import augment, load, loudest_window, synthesise
from index import FingerprintIndex, MelLikeBank


def build_shard(shard, paths, args, progress):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    log = logging.getLogger(f"shard{shard}")
    torch.set_num_threads(1)
    rng = np.random.default_rng(shard)
    bank = MelLikeBank(args.rate)
    index = FingerprintIndex()
    start = last = time.monotonic()
    matched = 0
    for version in range(args.versions):
        for path in paths:
            signal, rate = load(path)
            signal = augment(signal, rng)
            excerpt = loudest_window(signal, rate)
            vector = bank(excerpt)
            hit = index.query(vector, excerpt)
            matched += hit == path.stem
            index.add(path.stem, vector, excerpt)
            progress.put((shard, path.stem, version))
            now = time.monotonic()
            if now - last > 10:
                last = now
                log.info("%d excerpts, index %.1f MB, re-identified %d", len(index), index.nbytes() / 2**20, matched)
            if now - start > args.max_seconds:
                log.info("time budget used up at version %d", version)
                return
            time.sleep(args.pause)
    log.info("shard complete: %d excerpts", len(index))


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--recordings", type=int, default=12)
    p.add_argument("--seconds", type=float, default=30.0)
    p.add_argument("--rate", type=int, default=16000)
    p.add_argument("--shards", type=int, default=2)
    p.add_argument("--versions", type=int, default=500, help="augmented versions per recording")
    p.add_argument("--pause", type=float, default=0.4, help="seconds between recordings (shared disk)")
    p.add_argument("--max-seconds", type=float, default=105.0)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    log = logging.getLogger("indexer")
    with tempfile.TemporaryDirectory(prefix="recordings-") as tmp:
        root = pathlib.Path(tmp)
        paths = [root / f"rec{i:03d}.wav" for i in range(args.recordings)]
        for i, path in enumerate(paths):
            synthesise(path, args.seconds, args.rate, i)
        ctx = mp.get_context("spawn")
        progress = ctx.Queue()
        shards = [ctx.Process(target=build_shard, args=(s, paths[s::args.shards], args, progress),
                              name=f"shard{s}") for s in range(args.shards)]
        for p in shards:
            p.start()
        done, last = 0, time.monotonic()
        while any(p.is_alive() for p in shards):
            try:
                progress.get(timeout=1.0)
                done += 1
            except mp.queues.Empty:
                pass
            if time.monotonic() - last > 10:
                last = time.monotonic()
                log.info("%d of %d excerpts", done, args.recordings * args.versions)
        for p in shards:
            p.join()


if __name__ == "__main__":
    main()
