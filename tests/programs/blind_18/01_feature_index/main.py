"""Extract per-frame embeddings of video clips and collect them in one index."""
import argparse
import logging
import multiprocessing as mp
import signal
import socket
import time

import numpy as np
import torch
from torch import nn

from index_server import serve
from wire import IndexClient

log = logging.getLogger("extract")


class FrameEncoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(4), nn.Flatten(),
            nn.Linear(256, width),
        )

    def forward(self, frames):
        return self.body(frames)


def clip_lengths(seed, fps=8):
    """Clip durations follow the corpus: mostly 2 to 9 seconds."""
    rng = np.random.default_rng(seed)
    while True:
        yield int(rng.integers(2 * fps, 9 * fps))


def extractor(rank, args, port, progress):
    signal.alarm(args.walltime)
    torch.manual_seed(100 + rank)
    torch.set_num_threads(1)
    model = FrameEncoder(args.width).eval()
    client = IndexClient(port)
    started = time.monotonic()
    for clip, frames in enumerate(clip_lengths(args.seed + rank)):
        if clip >= args.clips:
            break
        pixels = torch.rand(frames, 3, 64, 64)
        with torch.no_grad():
            rows = model(pixels).numpy()
        first, total = client.add(rows)
        progress.put((rank, clip, frames, total, time.monotonic() - started))
        time.sleep(args.pause)
    client.close()
    progress.put((rank, None, 0, 0, time.monotonic() - started))


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--extractors", type=int, default=3)
    p.add_argument("--clips", type=int, default=400, help="clips per extractor")
    p.add_argument("--width", type=int, default=64)
    p.add_argument("--pause", type=float, default=0.2, help="seconds to fetch the next clip")
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("--walltime", type=int, default=130)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    signal.alarm(args.walltime)
    torch.set_num_threads(1)
    ctx = mp.get_context("fork")

    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = ctx.Process(target=serve, args=(listener, args.width, args.walltime),
                         name="index", daemon=True)
    server.start()
    listener.close()

    progress = ctx.Queue()
    workers = [ctx.Process(target=extractor, args=(r, args, port, progress),
                           name=f"extractor-{r}", daemon=True) for r in range(args.extractors)]
    for w in workers:
        w.start()
    log.info("%d extractors, index on port %d", len(workers), port)

    open_workers = set(range(args.extractors))
    while open_workers:
        rank, clip, frames, total, took = progress.get()
        if clip is None:
            open_workers.discard(rank)
            log.info("extractor %d done after %.1f s", rank, took)
        elif clip % 5 == 0:
            log.info("extractor %d clip %d (%d frames), %d rows indexed", rank, clip, frames, total)
    for w in workers:
        w.join()
    server.terminate()
    log.info("all clips indexed")


if __name__ == "__main__":
    main()
