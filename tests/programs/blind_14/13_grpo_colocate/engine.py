"""The generation engine: a process of its own that shares the device with the trainer, so it sleeps while
the trainer optimizes and the trainer waits while it generates."""
import logging
import time

import torch
import torch.multiprocessing as mp

from policy import TinyLM

log = logging.getLogger("engine")


class Engine:
    def __init__(self, token_time):
        torch.set_num_threads(1)
        self.model = None
        self.token_time = token_time

    def wake_up(self):
        self.model = TinyLM().eval()

    def sleep(self):
        self.model = None

    def load_weights(self, state):
        self.model.load_state_dict(state)

    @torch.inference_mode()
    def generate(self, prompts, max_tokens):
        ids, hidden = prompts, None
        out = [prompts]
        for _ in range(max_tokens):
            began = time.monotonic()
            logits, hidden = self.model(ids, hidden)
            ids = torch.distributions.Categorical(logits=logits[:, -1]).sample()[:, None]
            out.append(ids)
            time.sleep(max(0.0, self.token_time - (time.monotonic() - began)))
        return torch.cat(out, 1)


def engine_main(conn, token_time):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    engine = Engine(token_time)
    while True:
        method, args = conn.recv()
        if method == "shutdown":
            break
        result = getattr(engine, method)(*args)
        if method in ("wake_up", "sleep"):
            log.info("%s", method)
        conn.send(result)


class EngineClient:
    def __init__(self, token_time):
        ctx = mp.get_context("spawn")
        self.conn, child = ctx.Pipe()
        self.process = ctx.Process(target=engine_main, args=(child, token_time), name="engine", daemon=True)
        self.process.start()
        child.close()

    def call(self, method, *args):
        self.conn.send((method, args))
        return self.conn.recv()

    def shutdown(self):
        self.conn.send(("shutdown", ()))
        self.process.join()
