import argparse
import logging
import random
import time

import torch
import torch.multiprocessing as mp

from encoder import Encoder
from scheduler import Scheduler

log = logging.getLogger("service")
WORDS = ("vector search index shard query replica cosine passage title heading table figure caption author year "
         "volume archive memory page ledger harbour tide river bridge signal station tram winter summer").split()


def setup_logging(name):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [{name}] %(message)s")


def sentence(rng, low, high):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(low, high)))


def engine_process(args, inbox, outboxes, ready):
    setup_logging("engine")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = Encoder().to(device).eval()
    scheduler = Scheduler(model, device, inbox, outboxes, args.max_running, args.stats_interval)
    log.info("encoder ready on %s, max running requests %d", device, args.max_running)
    ready.set()
    scheduler.run()


class Client:
    def __init__(self, name, inbox, outbox):
        self.name, self.inbox, self.outbox = name, inbox, outbox
        self.next_id = 0

    def embed(self, texts):
        pending = set()
        for text in texts:
            self.inbox.put((self.name, self.next_id, text))
            pending.add(self.next_id)
            self.next_id += 1
        vectors = {}
        while pending:
            rid, vector = self.outbox.get()
            pending.discard(rid)
            vectors[rid] = vector
        return vectors


def search_client(args, inbox, outbox, ready):
    setup_logging("search")
    rng = random.Random(3)
    client = Client("search", inbox, outbox)
    ready.wait()
    served, started = 0, time.time()
    while True:
        client.embed([sentence(rng, 3, 9)])
        served += 1
        if served % 25 == 0:
            log.info("%d queries, %.1f ms each", served, 1000 * (time.time() - started) / served)
        time.sleep(rng.expovariate(1 / args.query_gap))


def index_client(args, inbox, outbox, ready):
    setup_logging("index")
    rng = random.Random(4)
    client = Client("index", inbox, outbox)
    ready.wait()
    documents = 0
    pages = [4, 9, 20, 12, 48, 30, 64]
    for number in range(10_000):
        passages = [sentence(rng, 20, 60) for _ in range(pages[number % len(pages)])]
        client.embed(passages)
        documents += 1
        log.info("document %d indexed (%d passages)", documents, len(passages))
        time.sleep(args.document_gap)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max-running", type=int, default=32)
    parser.add_argument("--stats-interval", type=float, default=10.0)
    parser.add_argument("--query-gap", type=float, default=0.05)
    parser.add_argument("--document-gap", type=float, default=0.3)
    args = parser.parse_args()
    setup_logging("main")
    ctx = mp.get_context("spawn")
    inbox, ready = ctx.Queue(), ctx.Event()
    outboxes = {"search": ctx.Queue(), "index": ctx.Queue()}
    procs = [ctx.Process(target=engine_process, args=(args, inbox, outboxes, ready), name="engine", daemon=True)]
    for name, target in (("search", search_client), ("index", index_client)):
        procs.append(ctx.Process(target=target, args=(args, inbox, outboxes[name], ready), name=name, daemon=True))
    for p in procs:
        p.start()
    for p in procs:
        p.join()


if __name__ == "__main__":
    main()
