"""Reads sensor values, scores them with a small network and publishes the scores."""
import asyncio
import collections
import logging
import time

import torch
from torch import nn

from aio_client import AsyncClient

log = logging.getLogger("bridge")


class Forecaster(nn.Module):
    def __init__(self, window, hidden=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(window, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


class Scaler:
    def __init__(self):
        self.values = []
        self.mean = self.std = None

    def update(self, value):
        self.values.append(value)

    def fit(self):
        t = torch.tensor(self.values)
        self.mean, self.std = t.mean().item(), max(t.std().item(), 1e-3)

    def __call__(self, value):
        return (value - self.mean) / self.std


async def bridge(host, port, args):
    model = Forecaster(args.window).eval()
    scaler = Scaler()
    history = collections.defaultdict(lambda: collections.deque(maxlen=args.window))
    received = published = 0
    started = time.monotonic()

    async with AsyncClient(host, port, "bridge") as client:
        await client.subscribe("plant/readings")
        log.info("subscribed, calibrating for %.0f s", args.calibration)
        while True:
            _, reading = await client.messages.get()
            received += 1
            if scaler.mean is None:
                scaler.update(reading["value"])
                if time.monotonic() - started > args.calibration:
                    scaler.fit()
                    log.info("scaler fitted on %d readings: mean %.2f std %.2f", len(scaler.values), scaler.mean, scaler.std)
                continue
            window = history[reading["sensor"]]
            window.append(scaler(reading["value"]))
            if len(window) < args.window:
                continue
            with torch.no_grad():
                forecast = model(torch.tensor([list(window)])).item()
            client.publish("plant/scores", {"sensor": reading["sensor"], "score": forecast - window[-1]})
            published += 1
            if published % 100 == 0:
                log.info("%d readings in, %d scores out", received, published)


def run_bridge(host, port, args):
    torch.set_num_threads(1)
    asyncio.run(bridge(host, port, args))
