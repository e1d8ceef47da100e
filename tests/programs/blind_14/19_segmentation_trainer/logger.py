"""Metric logging of the trainer: values given to log_dict are averaged over all ranks."""
import logging

import torch
import torch.distributed as dist


class LoggerConnector:
    def __init__(self, rank, world_size):
        self.world_size = world_size
        self.rank = rank
        self.log = logging.getLogger(f"rank{rank}")
        self.callback_metrics = {}

    def log_dict(self, metrics, sync_dist=True):
        for key in sorted(metrics):
            value = torch.as_tensor(float(metrics[key]))
            if sync_dist and self.world_size > 1:
                gathered = [torch.zeros_like(value) for _ in range(self.world_size)]
                dist.all_gather(gathered, value)
                value = torch.stack(gathered).mean()
            self.callback_metrics[key] = value.item()

    def flush(self, epoch):
        if self.rank == 0:
            text = " ".join(f"{k}={v:.4f}" for k, v in sorted(self.callback_metrics.items()))
            self.log.info("epoch %d %s", epoch, text)
