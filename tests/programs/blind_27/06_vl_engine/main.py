"""Answer questions about images, several samples each, with the engine in its own process."""
import argparse
import logging
import multiprocessing as mp
import random
import time

import numpy as np

from llm_engine import run_engine
from sequence import SamplingParams

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(asctime)s [%(processName)s] %(message)s")
logger = logging.getLogger("client")


class RequestSource:
    def __init__(self, image_size, seed):
        self.image_size = image_size
        self.rng, self.np_rng = random.Random(seed), np.random.default_rng(seed)

    def next(self, index, params):
        return dict(request_id=f"chatcmpl-{index}",
                    prompt_token_ids=[self.rng.randrange(2048) for _ in range(self.rng.randint(30, 120))],
                    image=self.np_rng.integers(0, 256, (3, self.image_size, self.image_size), dtype=np.uint8), params=params)


class Client:
    def __init__(self, args):
        self.args = args
        ctx = mp.get_context("fork")
        self.requests, self.outputs = ctx.Queue(), ctx.Queue()
        self.engine = ctx.Process(target=run_engine, args=(self.requests, self.outputs, args.max_num_seqs), name="EngineCore")
        self.engine.start()
        self.source = RequestSource(args.image_size, args.seed)

    def run(self):
        params = SamplingParams(n=self.args.n, max_tokens=self.args.max_tokens)
        in_flight, started, tokens = set(), time.time(), 0
        for index in range(self.args.num_requests):
            while len(in_flight) >= self.args.concurrency:
                request_id, samples = self.outputs.get()
                in_flight.discard(request_id)
                tokens += sum(map(len, samples))
            request = self.source.next(index, params)
            in_flight.add(request["request_id"])
            self.requests.put(request)
            if index and index % 50 == 0:
                logger.info("%d requests sent, %d in flight, %.0f tokens/s", index, len(in_flight), tokens / (time.time() - started))
            time.sleep(1 / self.args.request_rate)
        self.requests.put(None)
        self.engine.join()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=4)
    parser.add_argument("--max-tokens", type=int, default=24)
    parser.add_argument("--request-rate", type=float, default=8.0)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--max-num-seqs", type=int, default=32)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--num-requests", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=0)
    Client(parser.parse_args()).run()
