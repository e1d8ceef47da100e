"""parallel_apply of the cleaning function over a corpus, one slice per worker."""
import argparse
import logging
import time

from applier import ParallelApply
from cleaning import decode_clean
from corpus import load_corpus

log = logging.getLogger("corpus")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--documents", type=int, default=2400)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")

    texts = load_corpus(args.documents)
    log.info("%d documents, %.1f MB", len(texts), sum(map(len, texts)) / 1e6)
    t0 = time.time()
    cleaned = ParallelApply(args.workers, progress_every=15).apply(decode_clean, texts)
    log.info("cleaned %d documents (%.1f MB) in %.0f s", len(cleaned),
             sum(map(len, cleaned)) / 1e6, time.time() - t0)


if __name__ == "__main__":
    main()
