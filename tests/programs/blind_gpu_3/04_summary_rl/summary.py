"""Minimal summary writer: scalars and histograms, one npz file per flush."""
import os

import numpy as np


class SummaryWriter:
    def __init__(self, logdir, bins=512):
        os.makedirs(logdir, exist_ok=True)
        self.logdir = logdir
        self.bins = bins
        self._records = {}

    def scalar(self, name, value):
        self._records[name] = np.float32(value)

    def histogram(self, name, tensor):
        values = tensor.detach().float().cpu().numpy().ravel()
        counts, edges = np.histogram(values, bins=self.bins)
        quantiles = np.quantile(values, [0.01, 0.25, 0.5, 0.75, 0.99])
        self._records[name] = np.concatenate([counts, edges, quantiles])

    def flush(self, step):
        path = os.path.join(self.logdir, f"events_{step % 20:02d}.npz")
        np.savez(path, step=step, **self._records)
        self._records.clear()


def summarize_variables(writer, module):
    for name, param in module.named_parameters():
        writer.histogram("var/" + name.replace(".", "/").replace("/", "_"), param)
        if param.grad is not None:
            writer.histogram("grad/" + name.replace(".", "/").replace("/", "_"), param.grad)
