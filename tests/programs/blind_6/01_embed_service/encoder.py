"""Text encoder used by the ingestion workers."""
import asyncio
import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

_INFER_EXECUTOR = None
_INFER_GUARD = threading.Lock()


def get_infer_executor():
    global _INFER_EXECUTOR
    if _INFER_EXECUTOR is None:
        with _INFER_GUARD:
            if _INFER_EXECUTOR is None:
                _INFER_EXECUTOR = ThreadPoolExecutor(
                    max_workers=1, thread_name_prefix="hf-infer"
                )
    return _INFER_EXECUTOR


class BagEncoder(nn.Module):
    def __init__(self, vocab=4096, dim=96):
        super().__init__()
        self.vocab = vocab
        self.table = nn.EmbeddingBag(vocab, dim, mode="mean")
        self.proj = nn.Sequential(nn.Linear(dim, dim), nn.Tanh(), nn.Linear(dim, dim))

    def token_ids(self, text):
        return [
            int(hashlib.md5(w.encode()).hexdigest(), 16) % self.vocab
            for w in text.lower().split()
        ] or [0]

    @torch.inference_mode()
    def encode(self, texts):
        ids, offsets = [], []
        for text in texts:
            offsets.append(len(ids))
            ids.extend(self.token_ids(text))
        out = self.proj(self.table(torch.tensor(ids), torch.tensor(offsets)))
        return nn.functional.normalize(out, dim=-1).numpy()


async def embed(model, texts):
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(get_infer_executor(), model.encode, texts)
