"""Workers that turn documents into token ids and count what they have done."""
import logging
import random
import re
import time
import zlib

log = logging.getLogger("ingest")
WORD = re.compile(r"\w+|[^\w\s]")
VOCAB = 50_000
TEXT = ("The committee considered the proposal at length; nothing in it, they agreed, was new. "
        "Still, the figures (all 14 tables of them) would have to be checked before the vote. ")


class Counters:
    def __init__(self, make):
        self.documents = make()
        self.tokens = make()
        self.window_tokens = make()


def tokenize(text):
    return [zlib.crc32(w.lower().encode()) % VOCAB for w in WORD.findall(text)]


def read_documents(shard, seed):
    rng = random.Random(seed * 1000 + shard)
    while True:
        sentences = TEXT.split(". ")
        rng.shuffle(sentences)
        yield ". ".join(sentences) * rng.randint(4, 60)


def ingest_worker(shard, seed, counters, out_queue, block_size):
    block = []
    for document in read_documents(shard, seed):
        ids = tokenize(document)
        time.sleep(0.002)
        counters.documents.increment_and_get()
        counters.tokens.increment_and_get(len(ids))
        counters.window_tokens.increment_and_get(len(ids))
        block.extend(ids)
        while len(block) >= block_size:
            out_queue.put(block[:block_size])
            del block[:block_size]
