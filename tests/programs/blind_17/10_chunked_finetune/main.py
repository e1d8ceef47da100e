"""Fine-tunes on a corpus that is prepared chunk by chunk on the first local rank."""
import argparse
import logging
import os
import socket
import tempfile
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dataset import ChunkPreparer, load_chunk


class Classifier(nn.Module):
    def __init__(self, vocab, dim=48, classes=8):
        super().__init__()
        self.embed = nn.EmbeddingBag(vocab, dim)
        self.net = nn.Sequential(nn.Linear(dim, 96), nn.ReLU(), nn.Linear(96, classes))

    def forward(self, tokens):
        return self.net(self.embed(tokens))


class FinetuneRun:
    def __init__(self, rank, args):
        self.rank = rank
        self.args = args
        self.log = logging.getLogger(f"rank{rank}")
        self.model = DistributedDataParallel(Classifier(args.vocab))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=args.lr)
        self.preparer = ChunkPreparer(args.cache_dir, args.vocab, args.docs_per_chunk)

    def prepare(self, chunk):
        """Local rank 0 prepares the chunk, the others take it from the cache afterwards."""
        began = time.monotonic()
        if self.rank == 0:
            self.preparer.prepare(chunk, self.log)
        else:
            self.log.info("waiting for local rank 0 to prepare chunk %d", chunk)
        dist.barrier()
        tokens, labels = load_chunk(self.args.cache_dir, chunk)
        self.log.info("chunk %d ready after %.1f s: %d examples", chunk, time.monotonic() - began, len(labels))
        return tokens, labels

    def train_chunk(self, tokens, labels, steps):
        world = dist.get_world_size()
        tokens, labels = tokens[self.rank::world], labels[self.rank::world]
        generator = torch.Generator().manual_seed(self.rank)
        began = time.monotonic()
        for step in range(1, steps + 1):
            pick = torch.randint(len(labels), (self.args.batch_size,), generator=generator)
            loss = F.cross_entropy(self.model(tokens[pick]), labels[pick])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            time.sleep(self.args.step_pause)
            if self.rank == 0 and step % 25 == 0:
                self.log.info("step %d/%d loss %.3f, %.1f steps/s", step, steps, loss.item(),
                              step / (time.monotonic() - began))

    def run(self):
        started = time.monotonic()
        for chunk in range(self.args.chunks):
            tokens, labels = self.prepare(chunk)
            self.train_chunk(tokens, labels, self.args.steps_per_chunk)
            stop = torch.tensor([time.monotonic() - started > self.args.train_seconds], dtype=torch.int32)
            dist.broadcast(stop, 0)
            if stop.item():
                break
        self.log.info("finished")


def worker(rank, args):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(args.port))
    threading.Thread(target=lambda: (time.sleep(115), os._exit(0)), daemon=True).start()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)
    FinetuneRun(rank, args).run()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world-size", type=int, default=3)
    parser.add_argument("--chunks", type=int, default=8)
    parser.add_argument("--docs-per-chunk", type=int, default=4000)
    parser.add_argument("--steps-per-chunk", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--step-pause", type=float, default=0.05)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--vocab", type=int, default=4096)
    parser.add_argument("--train-seconds", type=float, default=75)
    args = parser.parse_args()
    args.cache_dir = tempfile.mkdtemp(prefix="chunks_")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        args.port = s.getsockname()[1]
    mp.spawn(worker, args=(args,), nprocs=args.world_size)


if __name__ == "__main__":
    main()
