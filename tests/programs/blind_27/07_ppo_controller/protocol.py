"""Data exchanged between the controller and the worker group."""
import io

import numpy as np
import torch


class DataProto:
    """A batch of tensors plus per-sample python objects."""

    def __init__(self, batch, non_tensor_batch=None, meta_info=None):
        self.batch = batch
        self.non_tensor_batch = non_tensor_batch or {}
        self.meta_info = meta_info or {}

    def __len__(self):
        return next(iter(self.batch.values())).shape[0]

    def __getstate__(self):
        buffer = io.BytesIO()
        torch.save({k: v.contiguous() for k, v in self.batch.items()}, buffer)
        return buffer.getvalue(), self.non_tensor_batch, self.meta_info

    def __setstate__(self, state):
        data, self.non_tensor_batch, self.meta_info = state
        self.batch = torch.load(io.BytesIO(data), weights_only=True)

    def chunk(self, chunks):
        batches = [dict(zip(self.batch, parts)) for parts in zip(*(v.chunk(chunks) for v in self.batch.values()))]
        objects = [dict(zip(self.non_tensor_batch, parts))
                   for parts in zip(*(np.array_split(v, chunks) for v in self.non_tensor_batch.values()))]
        return [DataProto(b, o, self.meta_info) for b, o in zip(batches, objects)]
