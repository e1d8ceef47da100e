import torch
import torch.distributed as dist


def evenly_divisible_all_gather(data):
    """Gather a per-rank tensor whose first dimension may differ between ranks."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return data
    length = torch.tensor([data.shape[0]])
    lengths = [torch.zeros_like(length) for _ in range(dist.get_world_size())]
    dist.all_gather(lengths, length)
    max_len = int(max(lengths))
    if data.shape[0] < max_len:
        pad = data.new_full((max_len - data.shape[0],) + data.shape[1:], float("nan"))
        data = torch.cat([data, pad])
    gathered = [torch.zeros_like(data) for _ in lengths]
    dist.all_gather(gathered, data)
    return torch.cat([g[: int(n)] for g, n in zip(gathered, lengths)])


class CumulativeIterationMetric:
    def __init__(self):
        self._buffer = []
        self._synced = None

    def reset(self):
        self._buffer.clear()
        self._synced = None

    def append(self, value):
        self._buffer.append(value)
        self._synced = None

    def get_buffer(self):
        if self._synced is None:
            self._synced = evenly_divisible_all_gather(torch.cat(self._buffer))
        return self._synced


class DiceMetric(CumulativeIterationMetric):
    """Mean dice over all images seen so far."""

    def __call__(self, y_pred, y):
        inter = (y_pred * y).flatten(2).sum(-1)
        total = y_pred.flatten(2).sum(-1) + y.flatten(2).sum(-1)
        dice = 2 * inter / total.clamp(min=1)
        self.append(dice)
        return dice

    def aggregate(self):
        return self.get_buffer().mean()
