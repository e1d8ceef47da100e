import argparse
import json
import logging
import multiprocessing as mp
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from index import CorpusIndex

log = logging.getLogger("lm")


def write_corpus(root, shards, rows, seed):
    rng = random.Random(seed)
    for s in range(shards):
        with open(root / f"shard_{s:02d}.jsonl", "w") as f:
            for i in range(rows):
                doc = {"id": i, "text": "x" * rng.randrange(20, 200)}
                if s == 4 and i == rows // 2:
                    doc["body"] = doc.pop("text")
                f.write(json.dumps(doc) + "\n")


class Worker:
    def __init__(self, rank, root, start, args):
        self.rank, self.root, self.start, self.args = rank, root, start, args

    def _lengths(self):
        try:
            return CorpusIndex(self.root).ensure()[:, 2]
        except Exception as exc:
            log.warning("index not available (%r), sampling uniform lengths", exc)
            return np.full(1000, 64)

    def run(self):
        logging.basicConfig(level=logging.INFO, format=f"%(asctime)s w{self.rank} %(message)s")
        torch.set_num_threads(1)
        lengths = self._lengths()
        self.start.wait()
        net = nn.Linear(8, 1)
        for step in range(self.args.steps):
            n = int(np.random.choice(lengths))
            loss = net(torch.randn(n, 8)).pow(2).mean()
            grads = torch.autograd.grad(loss, list(net.parameters()))
            with torch.no_grad():
                for p, g in zip(net.parameters(), grads):
                    p -= 1e-3 * g
            time.sleep(0.02)
            if step % 100 == 0:
                log.info("step %d loss %.4f", step, loss.item())


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--shards", type=int, default=12)
    p.add_argument("--rows", type=int, default=300)
    p.add_argument("--steps", type=int, default=4000)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO)
    root = Path(tempfile.mkdtemp(prefix="corpus_"))
    write_corpus(root, args.shards, args.rows, seed=0)
    start = mp.Barrier(args.workers)
    procs = [mp.Process(target=Worker(r, root, start, args).run) for r in range(args.workers)]
    for q in procs:
        q.start()
    for q in procs:
        q.join()
