"""Extract pooled features of every clip of a data set."""
import argparse
import logging
import multiprocessing
import time

import torch
from torch import nn

from clips import decode, index_clips

log = logging.getLogger("extract")
_net = None


def init_worker(seed):
    global _net
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    _net = nn.Sequential(nn.Conv2d(3, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.AdaptiveAvgPool2d(1))
    _net.eval()


@torch.no_grad()
def clip_features(info):
    frames = decode(info)
    feat = _net(frames).flatten(1).mean(0)
    return info.path, feat.tolist()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--root", default="/data/kinetics_mini")
    ap.add_argument("--clips", type=int, default=160)
    ap.add_argument("-j", "--workers", type=int, default=3)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")

    clips = index_clips(args.root, args.clips)
    feats, t0 = {}, time.time()
    with multiprocessing.Pool(args.workers, init_worker, (0,)) as pool:
        for i, (path, f) in enumerate(pool.imap_unordered(clip_features, clips)):
            feats[path] = f
            if i % 10 == 0:
                log.info("%d/%d clips, %.1f clips/s", i, len(clips), (i + 1) / (time.time() - t0))
    torch.save(feats, "/tmp/features.pt")
    log.info("wrote %d features", len(feats))


if __name__ == "__main__":
    main()
