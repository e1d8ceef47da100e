"""Single-node text generation server with its own load generator."""
import argparse
import itertools
import logging
import random
import threading
import time
from concurrent.futures import Future

import torch.multiprocessing as mp

from engine import detokenizer_main, engine_main, limit_walltime
from ipc import Channel

log = logging.getLogger("server")


class Frontend:
    def __init__(self, args):
        self.args = args
        ctx = mp.get_context("spawn")
        self.channel, self.engine_end = Channel.pair()
        self.to_detok, self.results = ctx.Queue(), ctx.Queue()
        self.ready = ctx.Event()
        self.engine = ctx.Process(target=engine_main, name="engine",
                                  args=(args, self.engine_end.sock, self.to_detok, self.ready), daemon=True)
        self.detok = ctx.Process(target=detokenizer_main, name="detokenizer",
                                 args=(args, self.to_detok, self.results), daemon=True)
        self.engine.start()
        self.detok.start()
        self.pending = {}
        self.ids = itertools.count()
        threading.Thread(target=self._dispatch, name="dispatch", daemon=True).start()

    def _dispatch(self):
        while True:
            request_id, text = self.results.get()
            future = self.pending.pop(request_id, None)
            if future is not None:
                future.set_result(text)

    def generate(self, prompt, max_tokens):
        request_id = next(self.ids)
        future = self.pending[request_id] = Future()
        self.channel.send({"id": request_id, "prompt": prompt, "max_tokens": max_tokens})
        return future.result()


class Client(threading.Thread):
    def __init__(self, name, frontend, args, start_after):
        super().__init__(name=name, daemon=True)
        self.frontend, self.args, self.start_after = frontend, args, start_after
        self.rng = random.Random(name)

    def run(self):
        time.sleep(self.start_after)
        log.info("%s connected", self.name)
        while True:
            prompt = [self.rng.randrange(self.args.vocab) for _ in range(self.rng.randint(40, 200))]
            began = time.time()
            text = self.frontend.generate(prompt, self.args.max_tokens)
            log.info("%s: %d words in %.2f s", self.name, len(text.split()), time.time() - began)
            time.sleep(self.args.think_time)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--vocab", type=int, default=4000)
    p.add_argument("--dim", type=int, default=256)
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--context", type=int, default=64)
    p.add_argument("--max-tokens", type=int, default=128)
    p.add_argument("--clients", type=int, default=4)
    p.add_argument("--ramp-up", type=float, default=9.0, help="seconds before the other clients join")
    p.add_argument("--think-time", type=float, default=0.2)
    p.add_argument("--time-limit", type=float, default=120)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    limit_walltime(args.time_limit)
    frontend = Frontend(args)
    frontend.ready.wait()
    clients = [Client(f"client-{i}", frontend, args, 0.0 if i == 0 else args.ramp_up) for i in range(args.clients)]
    for c in clients:
        c.start()
    for c in clients:
        c.join()


if __name__ == "__main__":
    main()
