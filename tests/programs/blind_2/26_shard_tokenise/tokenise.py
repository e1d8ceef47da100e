import argparse
import logging
import time

from multiprocess import Pool

from corpus import load_split, shard

log = logging.getLogger("tokenise")


def train_merges(vocab_size):
    return {("a", "l"): 0, ("t", "a"): 1, ("e", "t"): 2, ("p", "h"): 3, ("m", "m"): 4, ("e", "l"): 5, ("d", "a"): 6}


def bpe(word, merges):
    parts = list(word)
    while len(parts) > 1:
        ranked = [(merges.get(pair, 1e9), i) for i, pair in enumerate(zip(parts, parts[1:]))]
        best, i = min(ranked)
        if best == 1e9:
            break
        parts[i:i + 2] = ["".join(parts[i:i + 2])]
    return parts


def encode_shard(job):
    rank, docs, merges = job
    n_tokens = 0
    for doc in docs:
        for word in doc.split():
            n_tokens += len(bpe(word, merges))
    return rank, len(docs), n_tokens


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--docs", type=int, default=36000)
    p.add_argument("--num-proc", type=int, default=4)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    merges = train_merges(32000)
    docs = load_split(args.docs)
    started = time.monotonic()
    total = 0
    with Pool(args.num_proc) as pool:
        jobs = [(i, part, merges) for i, part in enumerate(shard(docs, args.num_proc))]
        for rank, n, tokens in pool.imap_unordered(encode_shard, jobs):
            total += tokens
            log.info("shard %d: %d documents, %d tokens, %.0fs", rank, n, tokens, time.monotonic() - started)
    log.info("%d tokens", total)


if __name__ == "__main__":
    main()
