import io
import time

import torch
from torch import nn


def evaluate_forever(ckpts, scores):
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
    x = torch.randn(2048, 32, generator=torch.Generator().manual_seed(0))
    while True:
        step, blob = ckpts.get()
        model.load_state_dict(torch.load(io.BytesIO(blob)))
        with torch.no_grad():
            err = (model(x) - x).pow(2).mean().item()
        time.sleep(0.6)
        scores.put((step, err))
