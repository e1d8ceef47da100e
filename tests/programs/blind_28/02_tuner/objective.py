import math

import torch
from torch import nn

_DATA = {}


def dataset(seed=0, n=1024, dim=24):
    if seed not in _DATA:
        gen = torch.Generator().manual_seed(seed)
        x = torch.randn(n, dim, generator=gen)
        w = torch.randn(dim, 1, generator=gen)
        y = torch.sin(x @ w / math.sqrt(dim)) + 0.1 * torch.randn(n, 1, generator=gen)
        _DATA[seed] = (x, y)
    return _DATA[seed]


def build(config, dim=24):
    return nn.Sequential(
        nn.Linear(dim, config["width"]), nn.Tanh(),
        nn.Linear(config["width"], config["width"]), nn.Tanh(),
        nn.Linear(config["width"], 1),
    )


def run_trial(config, seed=0, epochs=6):
    """Trains one configuration and returns its validation loss."""
    torch.set_num_threads(1)
    torch.manual_seed(config["trial"])
    x, y = dataset(seed)
    model = build(config)
    optim = torch.optim.Adam(model.parameters(), lr=config["lr"], weight_decay=config["decay"])
    for _ in range(epochs):
        for i in range(0, 768, config["batch"]):
            loss = nn.functional.mse_loss(model(x[i : i + config["batch"]]), y[i : i + config["batch"]])
            optim.zero_grad()
            loss.backward()
            optim.step()
    with torch.no_grad():
        value = nn.functional.mse_loss(model(x[768:]), y[768:]).item()
    return {"config": config, "value": value}


def confirm_trial(config, seeds):
    """Repeats a promising configuration on other data seeds."""
    values = [run_trial(config, seed=s)["value"] for s in seeds]
    return sum(values) / len(values)
