"""Export embeddings, one process per shard; the shards have very different sizes."""
import argparse
import logging
import multiprocessing as mp
import os
import tempfile
import time

import torch
from torch import nn

log = logging.getLogger("export")


class ShardExporter:
    def __init__(self, shard, n_docs, out_dir):
        self.shard, self.n_docs, self.out_dir = shard, n_docs, out_dir

    def __call__(self):
        logging.basicConfig(level=logging.INFO, format=f"%(asctime)s shard {self.shard} %(message)s")
        torch.set_num_threads(1)
        torch.manual_seed(self.shard)
        enc, embs = nn.EmbeddingBag(5000, 128), []
        with torch.no_grad():
            for d in range(self.n_docs):
                time.sleep(0.04)
                embs.append(enc(torch.randint(0, 5000, (1, 64))))
                if (d + 1) % 200 == 0:
                    log.info("%d/%d", d + 1, self.n_docs)
        torch.save(torch.cat(embs), os.path.join(self.out_dir, f"shard-{self.shard}.pt"))
        log.info("finished")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--docs", type=int, nargs="+", default=[120, 260, 420, 2600])
    ap.add_argument("--out", default=None)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    out = args.out or tempfile.mkdtemp(prefix="emb_")
    procs = [mp.Process(target=ShardExporter(i, n, out), name=f"shard-{i}") for i, n in enumerate(args.docs)]
    for p in procs:
        p.start()
    for p in procs:
        p.join()
        if p.exitcode:
            raise SystemExit(f"{p.name} failed with {p.exitcode}")
    log.info("all shards in %s", out)


if __name__ == "__main__":
    main()
