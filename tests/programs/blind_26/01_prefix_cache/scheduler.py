"""Event loop of one tensor-parallel rank."""
import collections
import dataclasses
import logging
import os
import signal
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from radix_cache import HierarchicalCache
from storage import PageStore, PrefetchThread

log = logging.getLogger("scheduler")
PAGE_SHAPE = (16, 64)


@dataclasses.dataclass
class Request:
    request_id: int
    prefix: int
    num_pages: int
    new_tokens: int
    generated: int = 0


class ShardedBlock(nn.Module):
    """A row-parallel MLP: each rank has its part of the hidden size."""

    def __init__(self, width, hidden, rank, world, group):
        super().__init__()
        torch.manual_seed(1000 + rank)
        self.up = nn.Linear(width, hidden // world)
        self.down = nn.Linear(hidden // world, width, bias=False)
        self.group = group

    def forward(self, x):
        y = self.down(torch.nn.functional.gelu(self.up(x)))
        dist.all_reduce(y, group=self.group)
        return x + y / 4


class Scheduler:
    def __init__(self, rank, world, args):
        self.rank = rank
        self.args = args
        self.device_group = dist.group.WORLD
        self.cpu_group = dist.new_group(backend="gloo")
        store = PageStore(args.storage_dir, PAGE_SHAPE)
        prefetcher = PrefetchThread(store)
        prefetcher.start()
        # the first rank also holds the tokenizer tables and the grammar cache in host memory
        host_pages = args.host_pages - (args.reserved_pages if rank == 0 else 0)
        self.cache = HierarchicalCache(store, prefetcher, self.cpu_group, host_pages, args.prefetch_budget)
        self.block = ShardedBlock(PAGE_SHAPE[1], 512, rank, world, self.device_group)
        self.waiting = collections.deque()
        self.running = []
        self.finished = 0
        self.store = store

    def receive(self):
        """Rank 0 takes the new requests and hands them to all."""
        batch = [None]
        if self.rank == 0:
            batch[0] = self.source.poll()
        dist.broadcast_object_list(batch, src=0, group=self.cpu_group)
        for request in batch[0]:
            self.cache.prefetch_from_storage(request)
            self.waiting.append(request)

    def admit(self):
        for _ in range(len(self.waiting)):
            if len(self.running) >= self.args.max_running:
                break
            request = self.waiting.popleft()
            if self.cache.check_prefetch_progress(request.request_id):
                self.running.append(request)
            else:
                self.waiting.append(request)

    @torch.inference_mode()
    def decode(self):
        # the batch always has its full size, like the captured graphs
        x = torch.zeros(self.args.max_running, PAGE_SHAPE[1])
        for i, request in enumerate(self.running):
            x[i] = self._context(request)
        self.block(x)
        still = []
        for request in self.running:
            request.generated += 1
            if request.generated >= request.new_tokens:
                self.finished += 1
            else:
                still.append(request)
        self.running = still

    def _context(self, request):
        # hidden state of the last token; the pages only speed up the prefill
        generator = torch.Generator().manual_seed(request.prefix + request.generated)
        return torch.randn(PAGE_SHAPE[1], generator=generator)

    def loop(self, source):
        self.source = source
        last = time.monotonic()
        while True:
            self.receive()
            self.admit()
            if self.running:
                self.decode()
            time.sleep(0.004)
            if time.monotonic() - last > 1:
                last = time.monotonic()
                log.info("rank %d: running %d, waiting %d, done %d, host pages %d/%d", self.rank, len(self.running),
                         len(self.waiting), self.finished, self.cache.host_used, self.cache.host_pages)


class TraceSource:
    """Replays a request trace: sessions come back with the prompt they had before."""

    def __init__(self, args):
        self.rng = np.random.default_rng(args.seed)
        self.args = args
        self.start = time.monotonic()
        self.sent = 0

    def poll(self):
        due = int((time.monotonic() - self.start) * self.args.rate)
        out = []
        while self.sent < due:
            # more sessions are active as the trace goes on
            active = min(self.args.sessions, 6 + self.sent // 5)
            out.append(Request(self.sent, int(self.rng.integers(active)), self.args.pages_per_prompt,
                               int(self.rng.integers(8, 24))))
            self.sent += 1
        return out


def run_rank(rank, world, port, args):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    Scheduler(rank, world, args).loop(TraceSource(args) if rank == 0 else None)
