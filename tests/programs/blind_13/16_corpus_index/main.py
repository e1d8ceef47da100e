"""Fit a small codebook on a corpus and serve embeddings for the index build."""
import argparse
import json
import logging
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from services import EmbeddingService

log = logging.getLogger("corpus_index")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--documents", type=int, default=6000)
    p.add_argument("--vocab", type=int, default=4000)
    p.add_argument("--dim", type=int, default=96)
    p.add_argument("--fit-steps", type=int, default=150)
    p.add_argument("--shards", type=int, default=2)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--seed", type=int, default=13)
    return p.parse_args()


def make_corpus(args, rng):
    lengths = rng.integers(8, 60, size=args.documents)
    return [rng.zipf(1.3, size=n).clip(max=args.vocab - 1).tolist() for n in lengths]


def fit_codebook(args, corpus, rng):
    table = torch.nn.EmbeddingBag(args.vocab, args.dim, mode="mean")
    opt = torch.optim.Adam(table.parameters(), lr=1e-2)
    for step in range(args.fit_steps):
        picks = rng.integers(0, len(corpus), size=64)
        left, right, offsets_l, offsets_r = [], [], [], []
        for i in picks:
            doc = corpus[i]
            half = len(doc) // 2
            offsets_l.append(len(left))
            offsets_r.append(len(right))
            left += doc[:half]
            right += doc[half:]
        a = table(torch.tensor(left), torch.tensor(offsets_l))
        b = table(torch.tensor(right), torch.tensor(offsets_r))
        logits = F.normalize(a, dim=1) @ F.normalize(b, dim=1).T / 0.1
        loss = F.cross_entropy(logits, torch.arange(len(picks)))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 30 == 0:
            log.info("fit step %d loss %.3f", step, loss.item())
        time.sleep(0.02)
    return table.weight.detach().numpy()


def build_index(args, services, corpus):
    vectors = []
    for start in range(0, len(corpus), args.batch):
        service = services[(start // args.batch) % len(services)]
        vectors.append(service.embed(corpus[start:start + args.batch]))
        if (start // args.batch) % 50 == 0:
            log.info("indexed %d / %d documents", start, len(corpus))
    return np.concatenate(vectors)


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    work = Path(tempfile.mkdtemp(prefix="corpus_index_"))

    corpus = make_corpus(args, rng)
    codebook = work / "codebook.npy"
    np.save(codebook, fit_codebook(args, corpus, rng))
    log.info("codebook written to %s", codebook)

    services = [EmbeddingService(i, codebook) for i in range(args.shards)]
    for service in services:
        service.launch()
    for service in services:
        service.wait_ready()
        log.info("embedding service %d is up", service.index)

    index = build_index(args, services, corpus)
    np.save(work / "index.npy", index)
    (work / "meta.json").write_text(json.dumps({"documents": len(index), "dim": args.dim}))
    for service in services:
        service.close()
    log.info("index of %d vectors done", len(index))


if __name__ == "__main__":
    main()
