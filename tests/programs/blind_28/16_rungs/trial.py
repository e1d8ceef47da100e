"""One trial: trains a small net with its configuration up to the milestones that the tuner allows."""
import logging

import torch
from torch import nn
from torch.nn import functional as F

log = logging.getLogger("trial")


def make_data(seed: int, rows: int = 4096):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 16, generator=g)
    return x, torch.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:3]


def run_trial(name: str, config: dict, conn):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s[%(process)d] %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(config["seed"])
    net = nn.Sequential(nn.Linear(16, config["width"]), nn.ReLU(), nn.Linear(config["width"], config["width"]), nn.ReLU(), nn.Linear(config["width"], 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=config["lr"], momentum=0.9)
    (x, y), (vx, vy) = make_data(1), make_data(2, 1024)
    done = 0
    while True:
        milestone = conn.recv()
        if milestone is None:
            return
        while done < milestone:
            pick = torch.randint(0, len(x), (128,))
            loss = F.mse_loss(net(x[pick]), y[pick])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            optimizer.step()
            done += 1
        with torch.no_grad():
            score = F.mse_loss(net(vx), vy).item()
        log.info("%s at %d steps: %.4f", name, done, score)
        conn.send((name, done, score))
