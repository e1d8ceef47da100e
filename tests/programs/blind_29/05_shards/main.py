import argparse
import logging
import tempfile
import time

import torch
from torch.utils.data import DataLoader

from model import make_model
from shards import ShardedImages, write_shards

log = logging.getLogger("train")


def train(args, folder):
    dataset = ShardedImages(folder, args.open_shards)
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, drop_last=True,
                        num_workers=args.workers, persistent_workers=True)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    step = 0
    for epoch in range(args.epochs):
        start, waited = time.monotonic(), 0.0
        mark = start
        for images, labels in loader:
            waited += time.monotonic() - mark
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % args.log_every == 0:
                passed = time.monotonic() - start
                log.info("epoch %d step %d loss %.4f, %.1f images/s, waiting for data %.0f%%", epoch, step, loss.item(),
                         args.batch_size * args.log_every / passed, 100 * waited / passed)
                start, waited = time.monotonic(), 0.0
            mark = time.monotonic()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shards", type=int, default=14)
    parser.add_argument("--shard-size", type=int, default=224)
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--open-shards", type=int, default=3, help="shards a data set keeps open")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--log-every", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="shards-") as folder:
        start = time.monotonic()
        write_shards(folder, args.shards, args.shard_size, args.image_size, args.seed)
        log.info("%d shards written in %.1f s", args.shards, time.monotonic() - start)
        train(args, folder)


if __name__ == "__main__":
    main()
