"""Engine core: continuous batching scheduler and a small decoder."""
import logging
import queue
import time
from collections import deque
from dataclasses import dataclass, field

import torch
from torch import nn

from kv_cache import KVCacheManager

EOS = 0


@dataclass
class Request:
    request_id: str
    client: int
    prompt: list
    max_tokens: int
    output: list = field(default_factory=list)

    @property
    def num_tokens(self):
        return len(self.prompt) + len(self.output)


class TinyDecoder(nn.Module):
    def __init__(self, vocab=512, dim=96, window=24):
        super().__init__()
        self.window = window
        self.embed = nn.Embedding(vocab, dim)
        self.mix = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, vocab)

    @torch.inference_mode()
    def next_token(self, tokens):
        hidden, _ = self.mix(self.embed(torch.tensor([tokens[-self.window:]])))
        logits = self.head(hidden[0, -1])
        logits[EOS] -= 2.0
        return int(torch.multinomial(torch.softmax(logits, -1), 1))


class Scheduler:
    def __init__(self, args):
        self.max_model_len = args.max_model_len
        self.max_num_seqs = args.max_num_seqs
        self.kv = KVCacheManager(args.num_blocks, args.block_size)
        self.waiting = deque()
        self.running = []
        self.log = logging.getLogger("scheduler")

    def add(self, request: Request):
        if len(request.prompt) + request.max_tokens > self.max_model_len:
            raise ValueError(f"{request.request_id}: prompt of {len(request.prompt)} tokens exceeds max_model_len")
        self.waiting.append(request)

    def schedule(self):
        scheduled = []
        for request in list(self.running):
            if request not in self.running:
                continue
            while self.kv.allocate_slots(request.request_id, request.num_tokens + 1) is None:
                victim = self.running.pop()
                self.kv.free(victim.request_id)
                self.waiting.appendleft(victim)
                if victim is request:
                    break
            else:
                scheduled.append(request)
        while self.waiting and len(self.running) < self.max_num_seqs:
            request = self.waiting[0]
            if self.kv.allocate_slots(request.request_id, request.num_tokens + 1) is None:
                break
            self.waiting.popleft()
            self.running.append(request)
            scheduled.append(request)
        return [r for r in scheduled if r in self.running]

    def finish(self, request):
        self.running.remove(request)
        self.kv.free(request.request_id)


class EngineCore:
    def __init__(self, args, inbox, outboxes):
        torch.set_num_threads(1)
        torch.manual_seed(args.seed)
        self.model = TinyDecoder().eval()
        self.scheduler = Scheduler(args)
        self.inbox, self.outboxes = inbox, outboxes
        self.stats_interval = args.stats_interval
        self.generated = 0
        self.log = logging.getLogger("engine")

    def drain_inbox(self):
        block = not (self.scheduler.waiting or self.scheduler.running)
        while True:
            try:
                request = self.inbox.get(block=block)
            except queue.Empty:
                return
            block = False
            try:
                self.scheduler.add(request)
            except ValueError as err:
                self.outboxes[request.client].put((request.request_id, None, str(err)))

    def step(self):
        batch = self.scheduler.schedule()
        if not batch:
            time.sleep(0.001)
            return
        for request in batch:
            token = self.model.next_token(request.prompt + request.output)
            request.output.append(token)
            self.generated += 1
            if token == EOS or len(request.output) >= request.max_tokens:
                self.scheduler.finish(request)
                self.outboxes[request.client].put((request.request_id, request.output, "stop"))

    def run(self):
        last, last_count = time.monotonic(), 0
        while True:
            self.drain_inbox()
            self.step()
            now = time.monotonic()
            if now - last >= self.stats_interval:
                self.log.info("generation throughput: %.1f tokens/s, running: %d reqs, waiting: %d reqs, KV cache usage: %.1f%%",
                              (self.generated - last_count) / (now - last), len(self.scheduler.running),
                              len(self.scheduler.waiting), 100 * self.scheduler.kv.pool.usage)
                last, last_count = now, self.generated


def run_engine(args, inbox, outboxes):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(name)s: %(message)s")
    EngineCore(args, inbox, outboxes).run()
