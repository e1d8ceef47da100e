import logging
import os
import queue
import sys

import torch
from torch import nn

from tokens import VOCAB_SIZE, HashTokenizer


class Encoder(nn.Module):
    def __init__(self, dim=256, layers=4):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB_SIZE, dim)
        layer = nn.TransformerEncoderLayer(dim, 8, dim * 4, batch_first=True, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, ids, mask):
        h = self.encoder(self.embedding(ids), src_key_padding_mask=~mask)
        pooled = (h * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
        return nn.functional.normalize(pooled, dim=-1)


def collect(requests, max_batch, wait):
    batch = [requests.get()]
    while len(batch) < max_batch:
        try:
            batch.append(requests.get(timeout=wait))
        except queue.Empty:
            break
    return batch


def serve(worker_id, device, requests, results, max_batch=8, wait=0.01):
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(name)s: %(message)s")
    log = logging.getLogger(f"worker{worker_id}")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, tokenizer = Encoder().to(device).eval(), HashTokenizer()
    log.info("model loaded, pid %d", os.getpid())
    results.put(("ready", worker_id, None))
    served = 0
    with torch.inference_mode():
        while True:
            batch = collect(requests, max_batch, wait)
            encoded = [tokenizer.encode(text) for _, text in batch]
            width = max(map(len, encoded))
            ids = torch.tensor([row + [0] * (width - len(row)) for row in encoded])
            mask = torch.tensor([[True] * len(row) + [False] * (width - len(row)) for row in encoded])
            vectors = model(ids.to(device), mask.to(device)).cpu().numpy()
            for (request_id, _), vector in zip(batch, vectors):
                results.put(("vector", request_id, vector))
            served += len(batch)
            if served % 50 < len(batch):
                log.info("%d requests served", served)
