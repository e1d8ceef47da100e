"""Surface inspection: two cameras, one detector process, one archiver; mostly waiting for frames."""
import argparse
import collections
import logging
import multiprocessing as mp
import time

import torch
from torch import nn

from camera import camera

log = logging.getLogger("line")


def detector(frames, findings):
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Conv2d(3, 8, 5, 3), nn.ReLU(), nn.Conv2d(8, 1, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with torch.no_grad():
        while True:
            idx, ts, raw = frames.get()
            x = torch.frombuffer(bytearray(raw), dtype=torch.uint8).float().view(1, 3, 96, 96) / 255
            findings.put((idx, ts, net(x).item()))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--fps", type=float, default=0.5)
    ap.add_argument("--report-every", type=float, default=20)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    frames, findings = mp.Queue(maxsize=16), mp.Queue(maxsize=64)
    for i in range(2):
        mp.Process(target=camera, args=(i, frames, args.fps), name=f"camera-{i}", daemon=True).start()
    mp.Process(target=detector, args=(frames, findings), name="detector", daemon=True).start()
    recent, n, last = collections.deque(maxlen=100), 0, time.time()
    while True:
        idx, ts, score = findings.get()
        recent.append((idx, score, time.time() - ts))
        n += 1
        if time.time() - last > args.report_every:
            last = time.time()
            log.info("%d frames, latency %.0f ms, max score %.3f", n,
                     1000 * sum(r[2] for r in recent) / len(recent), max(r[1] for r in recent))


if __name__ == "__main__":
    main()
