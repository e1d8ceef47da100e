import argparse
import logging
import multiprocessing as mp
import sys
import time

from pipeline import END, IndexClient, Normalizer, Reader

log = logging.getLogger("dedup")


def main():
    parser = argparse.ArgumentParser(description="remove duplicate urls before indexing")
    parser.add_argument("--chunks", type=int, default=38)
    parser.add_argument("--chunk-size", type=int, default=4000)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--queue-size", type=int, default=4)
    parser.add_argument("--seconds-per-bulk", type=float, default=2.6)
    parser.add_argument("--log-every", type=int, default=6)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")

    raw = mp.Queue(maxsize=args.queue_size)
    cleaned = mp.Queue(maxsize=args.queue_size)
    processes = [Reader(args.chunks, args.chunk_size, raw, args.workers)]
    processes += [Normalizer(i, raw, cleaned) for i in range(args.workers)]
    for process in processes:
        process.start()

    client = IndexClient(args.seconds_per_bulk)
    seen = set()
    finished = chunks = total = 0
    started = time.monotonic()
    while finished < args.workers:
        item = cleaned.get()
        if item == END:
            finished += 1
            continue
        _, keyed = item
        fresh = []
        for key, url in keyed:
            total += 1
            if key not in seen:
                seen.add(key)
                fresh.append(url)
        client.bulk(fresh)
        chunks += 1
        if chunks % args.log_every == 0:
            log.info("%d/%d chunks, %d of %d urls unique, %.0fs", chunks, args.chunks, len(seen), total,
                     time.monotonic() - started)
    for process in processes:
        process.join()
    log.info("done: %d unique urls, %d sent to the index", len(seen), client.sent)
    return 0


if __name__ == "__main__":
    sys.exit(main())
