"""Decode engine: one captured step for every position, replayed for all later tokens at that position."""
import logging
import time

import torch

from model import ChatModel

log = logging.getLogger("engine")


class CapturedStep:
    """The decode step of one (rows, position), with its own static buffers."""

    def __init__(self, engine, rows, pos):
        self.cache = engine.caches[rows]
        self.model, self.pos = engine.model, pos
        self.tokens = torch.zeros(rows, dtype=torch.long, device=engine.device)
        self.graph = None
        if engine.device.type == "cuda":
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self.logits = self._compute()
            torch.cuda.current_stream().wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.logits = self._compute()
        else:
            self.logits = self._compute()

    def _compute(self):
        return self.model.step(self.tokens, self.cache, self.pos)

    def __call__(self, tokens):
        self.tokens.copy_(tokens)
        if self.graph is not None:
            self.graph.replay()
        else:
            self.logits = self._compute()
        return self.logits


class DecodeEngine:
    def __init__(self, args, device):
        self.device = device
        torch.manual_seed(0)
        self.model = ChatModel().to(device).eval()
        self.caches = {rows: self.model.new_cache(rows, args.max_len, device) for rows in args.row_buckets}
        self.steps = {}

    def _step(self, rows, pos):
        key = (rows, pos)
        if key not in self.steps:
            self.steps[key] = CapturedStep(self, rows, pos)
        return self.steps[key]

    @torch.no_grad()
    def generate(self, start, fed, count):
        """Feeds the user's tokens (one list per position), then decodes `count` tokens greedily."""
        rows = len(fed[0])
        produced = []
        tokens = None
        for offset in range(len(fed) + count - 1):
            if offset < len(fed):
                tokens = torch.tensor(fed[offset], device=self.device)
            logits = self._step(rows, start + offset)(tokens)
            tokens = logits.argmax(dim=-1)
            if offset >= len(fed) - 1:
                produced.append(tokens)
        return torch.stack(produced, dim=1).tolist()


def engine_process(args, requests, replies, ready):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [engine] %(message)s")
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    engine = DecodeEngine(args, device)
    engine.generate(0, [[1] * args.row_buckets[0]], 2)
    log.info("ready on %s", device)
    ready.set()
    turns, tokens, busy = 0, 0, 0.0
    while True:
        turn = requests.get()
        if turn is None:
            return
        began = time.time()
        start, fed, count = turn
        replies.put(engine.generate(start, fed, count))
        busy += time.time() - began
        turns += 1
        tokens += len(fed[0]) * count
        if turns % 20 == 0:
            log.info("%d turns, %d tokens, %.1f ms per turn", turns, tokens, 1000 * busy / turns)
