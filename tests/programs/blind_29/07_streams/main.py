import argparse
import logging
import os
import pickle
import shutil
import struct
import subprocess
import sys
import time

import torch

from detach import run_detached
from scratch import Scratch

log = logging.getLogger("train")
HERE = os.path.dirname(os.path.abspath(__file__))


class Stream:
    def __init__(self, name, scratch, args, in_memory=False):
        self.name, self.batches = name, 0
        command = [sys.executable, os.path.join(HERE, "reader.py"), scratch.path, name, str(args.shards), str(args.batch_size)]
        self.process = subprocess.Popen(command + ["--in-memory"] * in_memory, stdout=subprocess.PIPE)

    def next(self):
        head = self.process.stdout.read(4)
        if len(head) < 4:
            return None
        self.batches += 1
        return torch.from_numpy(pickle.loads(self.process.stdout.read(struct.unpack("<I", head)[0])))


def upload(path, step, bucket):
    """Copies a snapshot to the bucket; the bucket is far away, so this is done on the side."""
    target = os.path.join(bucket, f"snapshot-{step}.pt")
    time.sleep(2.0)
    shutil.copyfile(path, target + ".part")
    os.replace(target + ".part", target)
    for old in sorted(os.listdir(bucket), key=lambda n: int(n.split("-")[1].split(".")[0]))[:-2]:
        os.remove(os.path.join(bucket, old))


def train(args, streams, model, bucket):
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    snapshot = os.path.join(bucket, os.pardir, "snapshot.pt")
    for step in range(1, args.steps + 1):
        parts = []
        for stream in list(streams):
            batch = stream.next()
            if batch is None:
                log.info("stream %s ended after %d batches", stream.name, stream.batches)
                streams.remove(stream)
            else:
                parts.append(batch)
        if not parts:
            break
        data = torch.cat(parts)
        loss = (model(data[:, :-1]).squeeze(-1) - data[:, -1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % args.log_every == 0:
            log.info("step %d loss %.4f from %d streams", step, loss.item(), len(parts))
        if step % args.snapshot_every == 0:
            torch.save(model.state_dict(), snapshot)
            run_detached(upload, snapshot, step, bucket)
            log.info("snapshot of step %d handed over", step)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", default="news,forum")
    parser.add_argument("--shards", type=int, default=6)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--features", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=1000000)
    parser.add_argument("--snapshot-every", type=int, default=300)
    parser.add_argument("--log-every", type=int, default=100)
    parser.add_argument("--bucket", default=os.path.join(HERE, "bucket", "run"))
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    os.makedirs(args.bucket, exist_ok=True)

    names = args.streams.split(",")
    scratch = Scratch()
    scratch.prepare(names + ["anchor"], args.shards, args.rows, args.features, args.seed)
    streams = [Stream(name, scratch, args) for name in names] + [Stream("anchor", scratch, args, in_memory=True)]
    model = torch.nn.Sequential(torch.nn.Linear(args.features, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
    train(args, streams, model, args.bucket)
    log.info("done")


if __name__ == "__main__":
    main()
