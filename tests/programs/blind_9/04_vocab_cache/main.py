"""Pre-tokenise a multilingual corpus for language model training."""
import argparse
import json
import logging
import multiprocessing as mp
import os
import random
import tempfile
import time

import torch

from tokenise import Tokeniser, VocabCache

log = logging.getLogger("prepare")
LANGUAGES = ["de", "fr", "it", "pl", "sv", "fi", "nl", "cs"]


class Corpus:
    def __init__(self, root, lines_per_language=1500, shards=10):
        self.root, self.n, self.shards = root, lines_per_language, shards

    def create(self, seed):
        rng = random.Random(seed)
        for lang in LANGUAGES:
            words = [f"{lang}{i}" for i in range(800)]
            with open(os.path.join(self.root, f"{lang}.jsonl"), "w") as f:
                for i in range(self.n):
                    line = json.dumps({"id": i, "text": " ".join(rng.choices(words, k=20))})
                    if lang == "pl" and i == 1207:
                        line = line[: len(line) // 2]
                    f.write(line + "\n")

    def lines(self, language):
        with open(os.path.join(self.root, f"{language}.jsonl")) as f:
            yield from f

    def shard(self, language, shard):
        for i, line in enumerate(self.lines(language)):
            if i % self.shards == shard:
                yield line


def worker(wid, jobs, results, corpus, cache_dir):
    tokeniser = Tokeniser(VocabCache(cache_dir), corpus)
    for language, shard in iter(jobs.get, None):
        try:
            n = tokeniser.encode_shard(language, shard)
        except ValueError as e:
            log.warning("worker %d: skipping %s/%d: %s", wid, language, shard, e)
            n = 0
        results.put((language, shard, n))


def main(args):
    ctx = mp.get_context("fork")
    with tempfile.TemporaryDirectory(prefix="corpus_") as root:
        corpus = Corpus(root)
        corpus.create(args.seed)
        jobs, results = ctx.Queue(), ctx.Queue()
        todo = [(lang, s) for _ in range(args.passes) for lang in LANGUAGES for s in range(corpus.shards)]
        for job in todo:
            jobs.put(job)
        for _ in range(args.workers):
            jobs.put(None)
        procs = [ctx.Process(target=worker, args=(w, jobs, results, corpus, root), name=f"tok-{w}")
                 for w in range(args.workers)]
        for p in procs:
            p.start()
        lengths, t0 = [], time.monotonic()
        for done in range(1, len(todo) + 1):
            language, shard, n = results.get()
            lengths.append(n)
            if done % 5 == 0:
                rate = done / (time.monotonic() - t0)
                log.info("%d/%d shards, %.1f shards/s, mean tokens %.0f", done, len(todo), rate,
                         torch.tensor(lengths, dtype=torch.float).mean().item())
        for p in procs:
            p.join()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--workers", type=int, default=4)
    ap.add_argument("--passes", type=int, default=200)
    ap.add_argument("--seed", type=int, default=3)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    main(ap.parse_args())
