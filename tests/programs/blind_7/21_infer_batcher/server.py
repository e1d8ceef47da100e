"""Batching inference server: a scheduler process and model processes behind queues."""
import logging
import time
from queue import Empty

import torch
from torch import nn

log = logging.getLogger(__name__)


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 16)).eval()


def scheduler(requests, batches, max_batch, max_wait):
    """Collects requests into batches; waits for the first one as long as it takes."""
    while True:
        first = requests.get()
        if first is None:
            batches.put(None)
            return
        batch, t_end = [first], time.monotonic() + max_wait
        while len(batch) < max_batch:
            left = t_end - time.monotonic()
            if left <= 0:
                break
            try:
                item = requests.get(timeout=left)
            except Empty:
                break
            if item is None:
                batches.put(batch)
                batches.put(None)
                return
            batch.append(item)
        batches.put(batch)


def model_process(idx, batches, replies):
    torch.set_num_threads(1)
    model = make_model()
    while True:
        batch = batches.get()
        if batch is None:
            batches.put(None)
            return
        with torch.no_grad():
            out = model(torch.stack([torch.tensor(x) for _, _, x in batch]))
        for (client, key, _), row in zip(batch, out):
            replies[client].put((key, row.argmax().item()))
