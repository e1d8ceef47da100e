"""Encode a corpus of sentences with several worker processes."""
import argparse
import logging
import os
import tempfile
import time

import numpy as np

from corpus import read_corpus
from encoder import SentenceEncoder


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--num-sentences", type=int, default=200000)
    p.add_argument("--num-workers", type=int, default=3)
    p.add_argument("--chunk-size", type=int, default=100)
    p.add_argument("--batch-size", type=int, default=20)
    p.add_argument("--out", default=None)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    sentences = read_corpus(args.num_sentences)
    model = SentenceEncoder()
    pool = model.start_multi_process_pool(args.num_workers)
    t0 = time.time()
    emb = model.encode_multi_process(sentences, pool, args.chunk_size, args.batch_size)
    model.stop_multi_process_pool(pool)
    out = args.out or os.path.join(tempfile.mkdtemp(prefix="emb_"), "corpus.npy")
    np.save(out, emb)
    logging.info("encoded %d sentences in %.1f s -> %s", len(emb), time.time() - t0, out)


if __name__ == "__main__":
    main()
