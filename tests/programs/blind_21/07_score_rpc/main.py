"""Clip selector: threads prepare clips, ask the scoring process for a score, train on the answer."""
import argparse
import logging
import multiprocessing as mp
import os
import queue
import threading
import time

import torch
from torch import nn

import scorer
from rpc import CallTimeout, RpcClient

log = logging.getLogger("select")


class ClipFeed:
    """Worker threads that turn clips into (features, score) pairs."""

    def __init__(self, client, args):
        self.client, self.args = client, args
        self.out = queue.Queue(maxsize=64)
        self.last_score = 0.0
        self.fallbacks = 0
        for i in range(args.threads):
            threading.Thread(target=self.work, args=(i,), name=f"clips-{i}", daemon=True).start()

    def work(self, seed):
        gen = torch.Generator().manual_seed(seed)
        while True:
            frames = torch.randn(self.args.frames, self.args.dim, generator=gen)
            try:
                score = self.client.call("score", frames.numpy().tobytes(), self.args.timeout)
                self.last_score = score
            except CallTimeout:
                self.fallbacks += 1
                score = self.last_score
            self.out.put((frames.mean(0), score))


class Selector(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, 64), nn.GELU(), nn.Linear(64, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--threads", type=int, default=6)
    p.add_argument("--frames", type=int, default=384)
    p.add_argument("--dim", type=int, default=256)
    p.add_argument("--timeout", type=float, default=0.2)
    p.add_argument("--lookup", type=float, default=0.05)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--max-seconds", type=float, default=105)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)

    ctx = mp.get_context("fork")
    ours, theirs = ctx.Pipe()
    server = ctx.Process(target=scorer.serve, name="scorer", daemon=True,
                         args=(theirs, args.dim, args.lookup, args.max_seconds + 15))
    server.start()
    theirs.close()
    limit = threading.Timer(args.max_seconds + 10, os._exit, (0,))
    limit.daemon = True
    limit.start()

    client = RpcClient(ours)
    feed = ClipFeed(client, args)
    model = Selector(args.dim)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    started = since = time.time()
    step = clips = 0
    while time.time() - started < args.max_seconds:
        pairs = [feed.out.get() for _ in range(args.batch)]
        x = torch.stack([f for f, _ in pairs])
        y = torch.tensor([s for _, s in pairs])
        loss = nn.functional.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        clips += len(pairs)
        if time.time() - since > 10:
            log.info("step %d loss %.5f %.1f clips/s, %d fallback scores", step, loss.item(),
                     clips / (time.time() - since), feed.fallbacks)
            clips, since = 0, time.time()
    server.terminate()
    log.info("finished after %d steps", step)


if __name__ == "__main__":
    main()
