"""Pretrain a small byte model from one packed corpus file that all readers map into memory."""
import argparse
import logging
import multiprocessing as mp
import os
import queue
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch
from torch import nn

from corpus import PackedCorpus, pack_corpus

log = logging.getLogger("pretrain")


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--corpus-mib", type=int, default=720)
    p.add_argument("--readers", type=int, default=2)
    p.add_argument("--sequence", type=int, default=64 * 1024, help="bytes that are read at once")
    p.add_argument("--crop", type=int, default=128)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--batches-per-second", type=float, default=7.0, help="pace of the whole run")
    p.add_argument("--report-every", type=float, default=5.0)
    p.add_argument("--train-seconds", type=float, default=120.0)
    p.add_argument("--seed", type=int, default=4)
    return p.parse_args()


class ByteModel(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Embedding(256, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, 256)

    def forward(self, x):
        return self.head(self.rnn(self.embed(x))[0])


def memory_of(pid):
    """Resident memory in MiB."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except FileNotFoundError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2 ** 20


def reader_process(index, path, batches, args, parent):
    """Goes through its share of the corpus and cuts a random crop out of every block."""
    torch.set_num_threads(1)
    corpus = PackedCorpus(path, args.sequence, part=index, parts=args.readers, seed=args.seed)
    generator = torch.Generator().manual_seed(args.seed + index)
    interval = args.readers / args.batches_per_second
    due = time.monotonic()
    while os.getppid() == parent:
        rows = []
        for _ in range(args.batch_size):
            block = corpus.next_block()
            start = int(torch.randint(len(block) - args.crop, (1,), generator=generator))
            rows.append(torch.from_numpy(block[start:start + args.crop].astype("int64")))
        try:
            batches.put((corpus.epoch, torch.stack(rows).numpy()), timeout=30)
        except queue.Full:
            continue
        due = max(due + interval, time.monotonic() - interval)
        time.sleep(max(0.0, due - time.monotonic()))


class Pretrainer:
    def __init__(self, args, readers):
        self.args = args
        self.readers = readers
        torch.manual_seed(args.seed)
        self.model = ByteModel()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)

    def step(self, rows):
        x = torch.from_numpy(rows)
        self.optimizer.zero_grad(set_to_none=True)
        logits = self.model(x[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten())
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fit(self, batches):
        begin = last = time.monotonic()
        steps = 0
        while time.monotonic() - begin < self.args.train_seconds:
            epoch, rows = batches.get()
            loss = self.step(rows)
            steps += 1
            if time.monotonic() - last > self.args.report_every:
                last = time.monotonic()
                rss = " ".join(f"{r.name} {memory_of(r.pid):.0f} MiB" for r in self.readers)
                log.info("step %d epoch %d loss %.3f, %.1f steps/s, resident: %s", steps, epoch, loss,
                         steps / (last - begin), rss)


def give_up(seconds):
    time.sleep(seconds)
    os._exit(1)


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(levelname)s %(message)s")
    threading.Thread(target=give_up, args=(args.train_seconds + 25,), daemon=True).start()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="corpus_") as folder:
        path = pack_corpus(Path(folder, "train.bin"), args.corpus_mib, args.seed)
        log.info("corpus of %d MiB packed", path.stat().st_size // 2 ** 20)
        batches = mp.Queue(maxsize=8)
        readers = [mp.Process(target=reader_process, name=f"reader-{i}", daemon=True,
                              args=(i, path, batches, args, os.getpid())) for i in range(args.readers)]
        for r in readers:
            r.start()
        Pretrainer(args, readers).fit(batches)
        for r in readers:
            r.terminate()
            r.join()


if __name__ == "__main__":
    main()
