import argparse
import logging
import multiprocessing as mp
import random
import re
import time
from collections import Counter

log = logging.getLogger("preprocess")
WORDS = [f"tok{i}" for i in range(5000)]


class Tokenizer:
    def __init__(self):
        self.vocab = {w: i for i, w in enumerate(WORDS)}
        self.pattern = re.compile(r"\w+")

    def encode(self, text):
        return [self.vocab.get(t, 0) for t in self.pattern.findall(text)]


def encoder(rank, tasks, results):
    tok = Tokenizer()
    while True:
        docs = tasks.get()
        if docs is None:
            break
        results.put([tok.encode(d) for d in docs])


class Deduplicator:
    def __init__(self, shingle=5):
        self.shingle = shingle
        self.seen = Counter()

    def is_new(self, doc):
        words = doc.split()
        grams = [" ".join(words[i:i + self.shingle]) for i in range(len(words) - self.shingle)]
        sig = min(hash(g) ^ h for g in grams for h in range(40))
        self.seen[sig % 100000] += 1
        return self.seen[sig % 100000] < 50


def read_corpus(n):
    rng = random.Random(0)
    for _ in range(n):
        yield " ".join(rng.choices(WORDS, k=300))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--workers", type=int, default=3)
    ap.add_argument("--docs", type=int, default=1000000)
    ap.add_argument("--chunk", type=int, default=16)
    ap.add_argument("--max-time", type=float, default=90)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    tasks, results = mp.Queue(64), mp.Queue()
    procs = [mp.Process(target=encoder, args=(r, tasks, results), name=f"encoder-{r}", daemon=True)
             for r in range(args.workers)]
    for p in procs:
        p.start()
    dedup = Deduplicator()
    chunk, tokens, sent, start, shown = [], 0, 0, time.time(), time.time()
    for doc in read_corpus(args.docs):
        if dedup.is_new(doc):
            chunk.append(doc)
        if len(chunk) == args.chunk:
            tasks.put(chunk)
            sent += 1
            chunk = []
            while not results.empty():
                tokens += sum(map(len, results.get()))
        if time.time() - shown > 5:
            shown = time.time()
            log.info("%d chunks sent, %.0f tokens/s", sent, tokens / (shown - start))
            if shown - start > args.max_time:
                break
    for _ in procs:
        tasks.put(None)
    for p in procs:
        p.join(5)


if __name__ == "__main__":
    main()
