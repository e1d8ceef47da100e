import argparse
import logging
import multiprocessing as mp
import time

import numpy as np

from broadcaster import MessageQueue
from worker import worker_main

log = logging.getLogger("engine")


class EngineCore:
    def __init__(self, args):
        ctx = mp.get_context("spawn")
        self.args = args
        self.mq = MessageQueue(ctx, args.tensor_parallel_size, 4, args.remind_after)
        self.workers = [ctx.Process(target=worker_main, args=(r, args.tensor_parallel_size, self.mq, args),
                                    name=f"Worker_TP{r}", daemon=True) for r in range(args.tensor_parallel_size)]
        for w in self.workers:
            w.start()
        began = time.time()
        self.collective_rpc("load_model", args.shards, args.shard_seconds)
        log.info("Model loading took %.1f seconds", time.time() - began)

    def collective_rpc(self, method, *params):
        self.mq.enqueue((method, params))
        return self.mq.gather()

    def step(self, x):
        for layer in range(self.args.layers):
            x = np.concatenate(self.collective_rpc("execute", layer, x), axis=1)
        return x

    def generate(self, request):
        x = np.random.default_rng(request).normal(size=(1, self.args.width)).astype(np.float32)
        for _ in range(self.args.max_tokens):
            x = self.step(x / (np.abs(x).max() + 1e-6))
        return float(x.mean())

    def shutdown(self):
        self.mq.enqueue(("shutdown", ()))
        for w in self.workers:
            w.join()


def parse_args():
    p = argparse.ArgumentParser(description="Serve a quantized model on two workers and run the smoke requests")
    p.add_argument("--tensor-parallel-size", type=int, default=2)
    p.add_argument("--width", type=int, default=768)
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--shards", type=int, default=10)
    p.add_argument("--shard-seconds", type=float, default=5.0)
    p.add_argument("--remind-after", type=int, default=15)
    p.add_argument("--max-tokens", type=int, default=40)
    p.add_argument("--requests", type=int, default=4)
    p.add_argument("--between", type=float, default=8.0, help="seconds between the requests of the client")
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="(EngineCore) %(levelname)s %(asctime)s [%(name)s] %(message)s")
    engine = EngineCore(args)
    for request in range(args.requests):
        began = time.time()
        score = engine.generate(request)
        log.info("request %d: %d tokens in %.1f s (%.4f)", request, args.max_tokens, time.time() - began, score)
        time.sleep(args.between)
    engine.shutdown()
    log.info("server closed")


if __name__ == "__main__":
    main()
