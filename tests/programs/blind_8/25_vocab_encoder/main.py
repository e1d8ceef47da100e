import argparse
import logging
import multiprocessing as mp
import time

from encoder import DocumentSource, VocabEncoder

log = logging.getLogger("encode")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--vocab-size", type=int, default=400000)
    p.add_argument("--documents", type=int, default=4000)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--chunksize", type=int, default=2)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")

    encoder = VocabEncoder(args.vocab_size)
    log.info("vocabulary of %d pieces", len(encoder.ids))
    start, tokens = time.time(), 0
    with mp.Pool(args.workers) as pool:
        encoded = pool.imap(encoder.encode, DocumentSource(args.documents, args.vocab_size), chunksize=args.chunksize)
        for n, ids in enumerate(encoded, 1):
            tokens += len(ids)
            if n % 10 == 0:
                log.info("%d documents, %d tokens, %.2f documents/s", n, tokens, n / (time.time() - start))


if __name__ == "__main__":
    main()
