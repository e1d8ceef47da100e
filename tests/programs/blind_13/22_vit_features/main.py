"""Extract the class token of a vision transformer for every image of a set."""
import argparse
import logging
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader

from extractor import Extractor
from images import ImageFolder
from vit import VisionTransformer

log = logging.getLogger("vit_features")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--images", type=int, default=80000)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--num-workers", type=int, default=2)
    p.add_argument("--module", default="norm")
    p.add_argument("--token", default="cls_token", choices=["cls_token", "all"])
    p.add_argument("--read-ms", type=float, default=7.0)
    p.add_argument("--out", default=None)
    return p.parse_args()


def rss_mb():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096 / 2 ** 20


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = VisionTransformer(image=32, patch=4, dim=128, depth=2, heads=4).eval()
    loader = DataLoader(ImageFolder(args.images, args.read_ms / 1000), batch_size=args.batch_size,
                        num_workers=args.num_workers)
    extractor = Extractor(model, args.module, args.token)
    started = time.time()
    features = extractor.extract(
        loader, lambda n: log.info("%d images, %.0f images/s, %.0f MB", n, n / (time.time() - started), rss_mb()))
    out = Path(args.out or tempfile.mkdtemp(prefix="features_")) / "features.npy"
    np.save(out, features)
    log.info("wrote %s %s", out, features.shape)


if __name__ == "__main__":
    main()
