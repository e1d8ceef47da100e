import argparse
import logging
import random
import sys
import threading
import time

from service import EmbeddingService

log = logging.getLogger("indexer")
WORDS = "order refund late parcel invoice login reset slow screen payment card address change thanks help".split()


def parse_args():
    ap = argparse.ArgumentParser(description="Embed support tickets into an index")
    ap.add_argument("--device", default="cuda:0")
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--clients", type=int, default=6)
    ap.add_argument("--tickets", type=int, default=20000)
    ap.add_argument("--pause", type=float, default=0.35, help="time a client takes to read a ticket")
    return ap.parse_args()


def tickets(count, seed=8):
    rng = random.Random(seed)
    for number in range(count):
        words = rng.choices(WORDS, k=rng.randint(8, 40))
        if number % 7 == 3:
            words.append("<url>")
        if number % 90 == 89:
            words.insert(2, "<tool>")
        yield number, " ".join(words)


class Indexer:
    def __init__(self, service, source, pause):
        self.service, self.source, self.pause = service, source, pause
        self.index = {}
        self.lock = threading.Lock()

    def client(self):
        while True:
            with self.lock:
                item = next(self.source, None)
            if item is None:
                return
            number, text = item
            time.sleep(self.pause)
            self.index[number] = self.service.embed(text)
            if len(self.index) % 25 == 0:
                log.info("%d tickets indexed", len(self.index))


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(name)s: %(message)s")
    service = EmbeddingService(args.device, args.workers)
    indexer = Indexer(service, tickets(args.tickets), args.pause)
    threads = [threading.Thread(target=indexer.client, name=f"client-{i}") for i in range(args.clients)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    log.info("index complete: %d tickets", len(indexer.index))


if __name__ == "__main__":
    main()
