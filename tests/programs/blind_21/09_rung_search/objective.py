import os
import threading
import time

import torch
from torch import nn


def teacher(x):
    return torch.sin(3 * x[:, :1]) + 0.5 * x[:, 1:2] * x[:, 2:3]


def train(name, config, reports, max_seconds):
    limit = threading.Timer(max_seconds, os._exit, (0,))
    limit.daemon = True
    limit.start()
    torch.set_num_threads(1)
    torch.manual_seed(config["seed"])
    model = nn.Sequential(nn.Linear(8, config["width"]), nn.ReLU(),
                          nn.Linear(config["width"], config["width"]), nn.ReLU(),
                          nn.Linear(config["width"], 1))
    opt = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)
    step = 0
    while True:
        total = 0.0
        for _ in range(20):
            x = torch.randn(128, 8)
            loss = nn.functional.mse_loss(model(x), teacher(x))
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
            time.sleep(0.01)
        step += 20
        reports.put((name, step, total / 20))
