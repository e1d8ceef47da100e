"""One member of the population: trains until it is told to stop."""
import json
import logging
import signal
import time
from pathlib import Path

import torch
from torch import nn


class Stop(Exception):
    pass


def _on_term(signum, frame):
    raise Stop


def member(name, lr, folder: Path, resume, may_run):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s", force=True)
    signal.signal(signal.SIGTERM, _on_term)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
    if resume and Path(resume).exists():
        net.load_state_dict(torch.load(resume, weights_only=True))
    params = list(net.parameters())
    gen = torch.Generator().manual_seed(1)
    step, loss = 0, torch.tensor(float("nan"))
    try:
        while True:
            may_run.wait()
            x = torch.randn(256, 16, generator=gen)
            loss = nn.functional.mse_loss(net(x), torch.sin(x.sum(1, keepdim=True)))
            with torch.no_grad():
                for p, g in zip(params, torch.autograd.grad(loss, params)):
                    p -= lr * g
            step += 1
            if step % 50 == 0:
                (folder / f"{name}.json").write_text(json.dumps({"loss": loss.item(), "step": step, "lr": lr}))
            time.sleep(0.01)
    except Stop:
        torch.save(net.state_dict(), folder / f"{name}.pt")
        logging.info("%s stops at step %d, loss %.4f", name, step, loss.item())
