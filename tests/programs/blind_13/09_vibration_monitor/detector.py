import logging
import time

import torch
from torch import nn

log = logging.getLogger("detector")


class Predictor(nn.Module):
    """Predicts the next sample of every machine from the signal so far."""

    def __init__(self, hidden):
        super().__init__()
        self.rnn = nn.LSTM(1, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, 1)

    def forward(self, x, state=None):
        out, state = self.rnn(x.unsqueeze(-1), state)
        return self.head(out).squeeze(-1), state


class StreamScorer:
    """Keeps the recurrent state between chunks, so that every chunk continues the signal."""

    def __init__(self, hidden):
        self.model = Predictor(hidden)
        self.model.eval()
        self.state = None
        self.last = None

    def score(self, chunk):
        pred, self.state = self.model(chunk, self.state)
        target = chunk[:, 1:]
        error = (pred[:, :-1] - target).abs().mean(dim=1)
        self.last = error.max().item()
        return error.tolist()


class Baseline:
    def __init__(self, seconds):
        self.seconds, self.started, self.values = seconds, time.monotonic(), []
        self.limit = None

    def update(self, chunk):
        self.values.append(chunk.abs().mean(dim=1))
        if time.monotonic() - self.started > self.seconds:
            self.limit = torch.stack(self.values).mean(0) * 1.8
            self.values.clear()


def run_detector(line, queue, alarms, args):
    torch.set_num_threads(1)
    torch.manual_seed(line)
    scorer = StreamScorer(args.hidden)
    baseline = Baseline(args.warmup)
    chunks, last_log = 0, time.monotonic()
    while True:
        chunk = torch.from_numpy(queue.get())
        if baseline.limit is None:
            baseline.update(chunk)
            continue
        scores = scorer.score(chunk)
        for machine, (score, limit) in enumerate(zip(scores, baseline.limit.tolist())):
            if score > limit:
                alarms.put((line, machine, score))
        chunks += 1
        if time.monotonic() - last_log > 10:
            log.info("%d chunks, worst score %.2f", chunks, scorer.last)
            last_log = time.monotonic()
