import argparse
import logging
import multiprocessing as mp
import os
import queue
import tempfile
import time

import torch
from torch import nn

from cache import LogitCache
from evaluator import evaluate_snapshots
from teacher import Student, label_corpus

log = logging.getLogger("student")


class Uploader:
    """Copies a snapshot to the archive at a limited rate, so that the shared link stays usable."""

    def __init__(self, folder, rate):
        self.folder, self.rate = folder, rate

    def upload(self, path, round_):
        target = os.path.join(self.folder, f"archive-{round_ % 3}.pt")
        with open(path, "rb") as source, open(target, "wb") as sink:
            while block := source.read(64 * 1024):
                sink.write(block)
                time.sleep(len(block) / self.rate)


class Distiller:
    def __init__(self, args, corpus, folder, teachers, outbox, credits, snapshots):
        self.teachers = teachers
        self.args, self.corpus, self.folder = args, corpus, folder
        self.outbox, self.credits, self.snapshots = outbox, credits, snapshots
        self.cache = LogitCache(len(corpus), args.classes)
        self.uploader = Uploader(folder, args.upload_rate)
        self.generator = torch.Generator().manual_seed(args.seed)
        self.student = Student(corpus.shape[1], args.classes)
        self.optimizer = torch.optim.AdamW(self.student.parameters(), lr=1e-3)
        self.open_teachers = args.teachers

    def collect(self, seconds=None):
        """Takes finished labels from the teachers; waits for the first one if seconds is given."""
        while self.open_teachers:
            try:
                ids, logits = self.outbox.get(timeout=seconds) if seconds else self.outbox.get_nowait()
            except queue.Empty:
                return
            seconds = None
            if logits is None:
                self.open_teachers -= 1
                self.teachers[ids].join()
                log.info("teacher %d has finished, cache holds %d samples (%.0f MB)", ids, len(self.cache),
                         self.cache.megabytes)
                continue
            self.cache.store(ids, logits)
            self.credits.release()

    def step(self):
        ids, target = self.cache.batch(self.args.batch_size, self.generator)
        logp = torch.log_softmax(self.student(self.corpus[ids]) / self.args.temperature, -1)
        loss = nn.functional.kl_div(logp, (target / self.args.temperature).softmax(-1), reduction="batchmean")
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def finish_round(self, round_):
        path = os.path.join(self.folder, "student.pt")
        torch.save({"model": self.student.state_dict(), "optimizer": self.optimizer.state_dict()}, path)
        self.snapshots.send((round_, {k: v.clone() for k, v in self.student.state_dict().items()}))
        began = time.monotonic()
        self.uploader.upload(path, round_)
        self.snapshots.recv()
        log.info("round %d archived and evaluated in %.1f s", round_, time.monotonic() - began)

    def run(self):
        while len(self.cache) < self.args.min_labels:
            self.collect(seconds=1.0)
        for round_ in range(1, self.args.rounds + 1):
            began, total = time.monotonic(), 0.0
            for _ in range(self.args.steps_per_round):
                self.collect()
                total += self.step()
            log.info("round %d: loss %.4f, %d samples cached, %.1f s", round_, total / self.args.steps_per_round,
                     len(self.cache), time.monotonic() - began)
            self.finish_round(round_)


def parse_args():
    p = argparse.ArgumentParser(description="distil a teacher into a student with cached logits")
    p.add_argument("--teachers", type=int, default=2)
    p.add_argument("--samples", type=int, default=36000)
    p.add_argument("--dim", type=int, default=64)
    p.add_argument("--classes", type=int, default=2000)
    p.add_argument("--teacher-views", type=int, default=5)
    p.add_argument("--label-batch", type=int, default=40)
    p.add_argument("--in-flight", type=int, default=12, help="labelled batches that may wait for the student")
    p.add_argument("--min-labels", type=int, default=1500)
    p.add_argument("--temperature", type=float, default=2.0)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--steps-per-round", type=int, default=500)
    p.add_argument("--rounds", type=int, default=100000)
    p.add_argument("--upload-rate", type=float, default=900e3, help="bytes per second")
    p.add_argument("--eval-views", type=int, default=20)
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    corpus, holdout = torch.randn(args.samples, args.dim), torch.randn(1500, args.dim)
    outbox, credits = mp.Queue(), mp.Semaphore(args.in_flight)
    here, there = mp.Pipe()
    teachers = [mp.Process(target=label_corpus, args=(i, args, corpus, outbox, credits), name=f"teacher-{i}", daemon=True)
                for i in range(args.teachers)]
    for proc in teachers:
        proc.start()
    mp.Process(target=evaluate_snapshots, args=(args, holdout, there), name="evaluator", daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="distill-") as folder:
        Distiller(args, corpus, folder, teachers, outbox, credits, here).run()


if __name__ == "__main__":
    main()
