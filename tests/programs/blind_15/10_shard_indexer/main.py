"""Read embedding shards in short-lived reader processes and build a clustered index from them."""
import argparse
import logging
import os
import tempfile
import time

import torch.multiprocessing as mp

from index_writer import index_writer
from shard_reader import read_shard

log = logging.getLogger("index")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--shards", type=int, default=200)
    p.add_argument("--batches-per-shard", type=int, default=24)
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--dim", type=int, default=64)
    p.add_argument("--segment", type=int, default=30000, help="vectors per index segment")
    p.add_argument("--queue-size", type=int, default=64)
    p.add_argument("--out", default=None)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    out = args.out or tempfile.mkdtemp(prefix="index_")
    q = mp.Queue(maxsize=args.queue_size)
    writer = mp.Process(target=index_writer, name="index-writer", args=(q, out, args.segment, args.dim))
    writer.start()
    for shard in range(args.shards):
        reader = mp.Process(target=read_shard, name="reader-%03d" % shard,
                            args=(shard, q, args.batches_per_shard, args.batch, args.dim))
        reader.start()
        reader.join()
        log.info("shard %d/%d read", shard + 1, args.shards)
    q.put(None)
    writer.join()
    log.info("index in %s: %d segments", out, len(os.listdir(out)))


if __name__ == "__main__":
    main()
