import time

import torch


class ModelShard:
    """Weights of one learner, kept in shared memory, with the diff since the last mix."""

    def __init__(self, ctx, features, classes):
        self.weight = torch.zeros(classes, features).share_memory_()
        self.base = torch.zeros(classes, features).share_memory_()
        self.lock = ctx.Lock()

    def scores(self, x):
        return self.weight @ x.T

    def step(self, x, y, rate):
        """One passive-aggressive pass over the mini-batch."""
        for row, label in zip(x, y):
            scores = self.weight @ row
            rival = int(scores.index_fill(0, label.reshape(1), -1e9).argmax())
            loss = 1.0 - (scores[label] - scores[rival])
            if loss > 0:
                tau = rate * float(loss) / (2.0 * float(row @ row) + 1e-6)
                self.weight[label] += tau * row
                self.weight[rival] -= tau * row

    def get_diff(self):
        with self.lock:
            return self.weight - self.base

    def put_diff(self, merged):
        with self.lock:
            self.base += merged
            self.weight.copy_(self.base)


class Stream:
    def __init__(self, seed, features, classes, rate_hz):
        self.gen = torch.Generator().manual_seed(seed)
        self.centres = torch.randn(classes, features, generator=torch.Generator().manual_seed(1))
        self.period = 1.0 / rate_hz

    def batches(self, size):
        classes, features = self.centres.shape
        while True:
            y = torch.randint(classes, (size,), generator=self.gen)
            x = self.centres[y] + 1.5 * torch.randn(size, features, generator=self.gen)
            time.sleep(self.period)
            yield x, y
