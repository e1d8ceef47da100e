import argparse
import logging
import queue
import random
import sys
import threading
import time
from concurrent.futures import Future

import torch

from decoder import Decoder
from prefix_cache import PrefixCache, concat

log = logging.getLogger("server")


def parse_args():
    ap = argparse.ArgumentParser(description="Serve completions with a cache of prompt prefixes")
    ap.add_argument("--device", default="cuda:0")
    ap.add_argument("--cache-mb", type=int, default=1100)
    ap.add_argument("--prefix-tokens", type=int, default=448)
    ap.add_argument("--new-tokens", type=int, default=6)
    ap.add_argument("--clients", type=int, default=3)
    ap.add_argument("--conversations", type=int, default=400)
    ap.add_argument("--pause", type=float, default=1.4)
    ap.add_argument("--seconds", type=float, default=102.0)
    return ap.parse_args()


class Server:
    def __init__(self, args):
        self.args = args
        self.model = Decoder().to(args.device).eval()
        self.cache = PrefixCache(args.cache_mb)
        self.requests = queue.Queue()
        self.thread = threading.Thread(target=self.loop, name="gpu")
        self.thread.start()

    def complete(self, conversation, prompt):
        future = Future()
        self.requests.put((conversation, prompt, future))
        return future.result()

    def close(self):
        self.requests.put(None)
        self.thread.join()

    @torch.inference_mode()
    def loop(self):
        while (request := self.requests.get()) is not None:
            conversation, prompt, future = request
            future.set_result(self.generate(conversation, prompt))

    def prefix(self, conversation):
        kv = self.cache.get(conversation)
        if kv is None:
            gen = torch.Generator().manual_seed(conversation)
            tokens = torch.randint(4096, (1, self.args.prefix_tokens), generator=gen)
            _, kv = self.model(tokens.to(self.args.device))
            self.cache.put(conversation, kv)
        return kv

    def generate(self, conversation, prompt):
        past = self.prefix(conversation)
        tokens, answer = torch.tensor([prompt], device=self.args.device), []
        for _ in range(self.args.new_tokens):
            for position in range(tokens.shape[1]):
                logits, new = self.model(tokens[:, position : position + 1], past)
                past = concat(past, new)
            tokens = logits.argmax(dim=-1, keepdim=True)
            answer.append(tokens)
        return torch.cat(answer, dim=1)[0].tolist()


def client(server, args, seed, until):
    rng = random.Random(seed)
    while time.time() < until:
        conversation = int(args.conversations * rng.random() ** 1.3)
        server.complete(conversation, [rng.randrange(4096) for _ in range(8)])
        time.sleep(args.pause)


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(message)s")
    torch.manual_seed(0)
    torch.set_num_threads(2)
    server, until = Server(args), time.time() + args.seconds
    clients = [threading.Thread(target=client, args=(server, args, i, until)) for i in range(args.clients)]
    for c in clients:
        c.start()
    while time.time() < until:
        time.sleep(5)
        log.info(server.cache.stats())
    for c in clients:
        c.join()
    server.close()
    log.info("closed: %s", server.cache.stats())


if __name__ == "__main__":
    main()
