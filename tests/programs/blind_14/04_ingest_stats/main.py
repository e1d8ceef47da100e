import argparse
import logging
import multiprocessing as mp
import os
import tempfile
import threading
import time

import numpy as np

from atomic import AtomicInteger
from pipeline import Counters, ingest_worker

log = logging.getLogger("main")


class BlockWriter(threading.Thread):
    """Appends the token blocks to the output file."""

    def __init__(self, queue, path):
        super().__init__(name="block-writer", daemon=True)
        self.queue = queue
        self.path = path
        self.blocks = 0

    def run(self):
        with open(self.path, "wb") as f:
            while True:
                block = self.queue.get()
                if block is None:
                    break
                f.seek(self.blocks % 2000 * len(block) * 2)
                f.write(np.asarray(block, dtype=np.uint16).tobytes())
                self.blocks += 1


def parse_args():
    p = argparse.ArgumentParser(description="Tokenize the crawl into fixed blocks")
    p.add_argument("--shards", type=int, default=3)
    p.add_argument("--block-size", type=int, default=2048)
    p.add_argument("--tokens", type=int, default=2_000_000_000)
    p.add_argument("--check-every", type=float, default=1.0)
    p.add_argument("--report-every", type=int, default=7, help="in checks")
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    counters = Counters(AtomicInteger)
    queue = mp.Queue(maxsize=64)
    workers = [mp.Process(target=ingest_worker, name=f"ingest-{i}", daemon=True,
                          args=(i, args.seed, counters, queue, args.block_size))
               for i in range(args.shards)]
    for w in workers:
        w.start()
    path = os.path.join(tempfile.mkdtemp(prefix="ingest_"), "tokens.bin")
    writer = BlockWriter(queue, path)
    writer.start()
    log.info("writing to %s", path)

    checks = 0
    while counters.tokens.value < args.tokens:
        time.sleep(args.check_every)
        checks += 1
        log.info("%d documents, %d tokens", counters.documents.value, counters.tokens.value)
        if checks % args.report_every == 0:
            tokens = counters.window_tokens.get_and_set(0)
            log.info("%.0f tokens/s in the last window, %d blocks written",
                     tokens / (args.report_every * args.check_every), writer.blocks)
    for w in workers:
        w.terminate()
    queue.put(None)
    writer.join()


if __name__ == "__main__":
    main()
