"""Worker process: holds one shard of the model and executes what the engine sends."""
import logging
import os
import signal
import time

import torch
from torch import nn

from message_queue import MessageQueue


class Shard(nn.Module):
    def __init__(self, width, hidden, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width, bias=False)
        self.adapters = nn.ModuleDict()

    def forward(self, x, adapter):
        y = self.down(torch.relu(self.up(x)))
        return y if adapter is None else y + self.adapters[adapter](x)


class Worker:
    def __init__(self, rank, width, hidden):
        self.rank = rank
        self.width = width
        self.shard = Shard(width, hidden, 40 + rank)

    @torch.inference_mode()
    def execute_model(self, step, batch, adapter):
        return step, self.shard(batch, adapter)

    def load_adapter(self, name, rank_of_update, file_mb, read_mbps):
        """Reads the weights of an adapter (from the model share, at its rate)."""
        low = nn.Linear(self.width, rank_of_update, bias=False)
        high = nn.Linear(rank_of_update, self.width, bias=False)
        time.sleep(file_mb / read_mbps)
        self.shard.adapters[name] = nn.Sequential(low, high)
        return name

    def ping(self):
        return os.getpid()


def worker_main(rank, sock, width, hidden):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    log = logging.getLogger(f"worker-{rank}")
    torch.set_num_threads(1)
    worker = Worker(rank, width, hidden)
    queue = MessageQueue(sock)
    log.info("ready, pid %d", os.getpid())
    while True:
        call_id, method, args, deadline = queue.dequeue()
        if deadline is not None and time.monotonic() > deadline:
            # the engine has given up on this call, its result would only be in the way
            log.warning("call %d (%s) is past its deadline, dropped", call_id, method)
            continue
        queue.enqueue((call_id, getattr(worker, method)(*args)))
