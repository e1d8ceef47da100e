"""Encode a corpus with a pool of workers that share one vocabulary bundle."""
import argparse
import logging
import multiprocessing as mp
import os
import random
import tempfile

import torch

from vocab import Vocabulary, encode_block, init_worker

log = logging.getLogger("encode")
STEMS = ["con", "tri", "bas", "mel", "por", "ver", "sal", "dor", "nim", "lux"]


def corpus(n, seed=5):
    rng = random.Random(seed)
    words = [a + b + c for a in STEMS for b in STEMS for c in STEMS]
    for _ in range(n):
        yield " ".join(words[min(int(rng.expovariate(1 / 120)), 999)] for _ in range(25))


def save_bundle(lines, path):
    vocab = Vocabulary.build(lines)
    df = torch.zeros(len(vocab.itos))
    for line in lines:
        df[list(set(vocab.encode(line)))] += 1
    torch.save({"vocab": vocab, "idf": torch.log(len(lines) / (1 + df))}, path)


def blocks(lines, size):
    for i in range(0, len(lines), size):
        yield lines[i : i + size]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--lines", type=int, default=4000)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--block", type=int, default=50)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    lines = list(corpus(args.lines))
    path = os.path.join(tempfile.mkdtemp(prefix="encode_"), "bundle.pt")
    save_bundle(lines, path)
    log.info("bundle written to %s", path)

    total = 0.0
    with mp.Pool(args.workers, initializer=init_worker, initargs=(path,)) as pool:
        for n, arr in enumerate(pool.imap(encode_block, blocks(lines, args.block)), 1):
            total += float(arr.sum())
            if n % 10 == 0:
                log.info("%d blocks, mass %.1f", n, total)
    log.info("finished, mass %.1f", total)


if __name__ == "__main__":
    main()
