"""Processes of the collection: searchers, the ingest queue and the indexer."""
import logging
import queue
import signal
import threading
import time

import torch

log = logging.getLogger("collection")


def setup(name):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    return logging.getLogger(name)


def serve(name, seed, segment, lock, counter, args):
    log = logging.getLogger(name)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(seed)
    dim = segment.vectors.shape[1]
    done, latency, last = 0, 0.0, time.monotonic()
    while True:
        query = torch.randn(dim, generator=generator)
        began = time.monotonic()
        with lock.reading():
            rows, scores = segment.search(query, args.k)
            texts = []
            for row in rows.tolist():
                texts.append(segment.fetch(row))
                time.sleep(args.fetch_ms / 1000)  # the volume is on the network
        done += 1
        latency += time.monotonic() - began
        with counter.get_lock():
            counter.value += 1
        if time.monotonic() - last > 10:
            log.info("%d searches, %.1f ms each, segment version %d with %d rows", done, 1000 * latency / done,
                     int(segment.version), int(segment.size))
            done, latency, last = 0, 0.0, time.monotonic()


def searcher(index, segment, lock, counter, args):
    setup(f"searcher-{index}")
    threads = [threading.Thread(target=serve, args=(f"searcher-{index}.{t}", 100 + 10 * index + t, segment, lock, counter, args))
               for t in range(args.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def ingester(inbox, args):
    """Reads new documents of the source and embeds them."""
    log = setup("ingester")
    projection = torch.randn(args.dim, args.dim, generator=torch.Generator().manual_seed(9))
    generator = torch.Generator().manual_seed(77)
    batch_no = 0
    while True:
        batch = torch.tanh(torch.randn(args.batch, args.dim, generator=generator) @ projection)
        inbox.put((batch_no, batch.numpy()))
        batch_no += 1
        if batch_no % 10 == 0:
            log.info("embedded %d batches", batch_no)
        time.sleep(args.ingest_interval)


def indexer(inbox, segment, lock, args):
    log = setup("indexer")
    while True:
        try:
            batch_no, batch = inbox.get(timeout=30)
        except queue.Empty:
            log.info("no new documents")
            continue
        with lock.writing():
            segment.add(torch.from_numpy(batch))
        if batch_no % 5 == 0:
            log.info("batch %d is in, %d rows", batch_no, int(segment.size))
