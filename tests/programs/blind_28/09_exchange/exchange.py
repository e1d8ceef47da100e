"""Record exchanges of the serving engine: every stage of a plan runs behind its own exchange."""
import logging
import queue
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

log = logging.getLogger("exchange")

executor = ThreadPoolExecutor(max_workers=8, thread_name_prefix="exchange")


class StageServer:
    """An in-process server of one user defined function."""

    def __init__(self, name: str, module: nn.Module):
        self.name = name
        self.module = module.eval()
        self.calls = 0

    @torch.no_grad()
    def apply(self, batch: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.module(batch)


def build_stages(width: int) -> dict[str, StageServer]:
    torch.manual_seed(7)
    return {
        "scale": StageServer("scale", nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width))),
        "embed": StageServer("embed", nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))),
        "score": StageServer("score", nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))),
    }


class Exchange:
    def __init__(self, server: StageServer):
        self.server = server
        self.wire = queue.Queue()
        self.replies = queue.Queue()

    def do_writes(self, batches) -> int:
        count = 0
        for batch in batches:
            self.wire.put(batch)
            count += 1
        self.wire.put(None)
        return count

    def do_reads(self) -> int:
        count = 0
        while (batch := self.wire.get()) is not None:
            self.replies.put(self.server.apply(batch))
            count += 1
        return count

    def do_writes_reads(self, batches):
        writes = executor.submit(self.do_writes, batches)
        reads = executor.submit(self.do_reads)
        result = writes.result(), reads.result()
        self.replies.put(None)
        return result

    def stream(self, batches):
        future = executor.submit(self.do_writes_reads, batches)
        while (batch := self.replies.get()) is not None:
            yield batch
        future.result()


def run_plan(servers: dict[str, StageServer], plan: list[str], batches):
    stream = iter(batches)
    for name in plan:
        stream = Exchange(servers[name]).stream(stream)
    return stream
