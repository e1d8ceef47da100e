import time

import torch


def long_report(model, docs, seconds):
    """Scores every document one at a time; takes a while on purpose."""
    end = time.monotonic() + seconds
    scores = []
    gen = torch.Generator().manual_seed(99)
    while len(scores) < docs or time.monotonic() < end:
        with torch.no_grad():
            scores.append(model(torch.randn(4, 16, generator=gen)).mean().item())
        time.sleep(0.05)
    return sum(scores) / len(scores), len(scores)
