"""Online classifier: several learners on a stream, mixed periodically."""
import argparse
import logging
import multiprocessing as mp
import signal
import time

import torch

from mixer import LinearMixer
from model import ModelShard, Stream

log = logging.getLogger("server")


class Learner:
    def __init__(self, rank, shard, mixer, args):
        self.rank = rank
        self.shard = shard
        self.mixer = mixer
        self.args = args

    def train(self, x, y):
        with self.shard.lock:
            self.shard.step(x, y, self.args.rate)
            self.mixer.updated(len(y))

    def run(self):
        a = self.args
        signal.alarm(a.walltime)
        torch.set_num_threads(1)
        stream = Stream(10 + self.rank, a.features, a.classes, a.rate_hz)
        right = seen = 0
        for n, (x, y) in enumerate(stream.batches(a.batch_size), 1):
            right += int((self.shard.scores(x).argmax(0) == y).sum())
            seen += len(y)
            self.train(x, y)
            if n % a.log_every == 0:
                log.info("learner %d: %d batches, online accuracy %.3f", self.rank, n, right / seen)
                right = seen = 0


def monitor(mixer, learners, args):
    end = time.monotonic() + args.duration
    while time.monotonic() < end:
        time.sleep(5)
        dead = [p.name for p in learners if not p.is_alive()]
        if dead:
            raise SystemExit(f"processes ended: {dead}")
        log.info("samples %d, mixing rounds %d", mixer.total.value, mixer.rounds.value)


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--learners", type=int, default=3)
    p.add_argument("--features", type=int, default=64)
    p.add_argument("--classes", type=int, default=8)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--rate", type=float, default=0.5)
    p.add_argument("--rate-hz", type=float, default=60.0)
    p.add_argument("--mix-count", type=int, default=4096)
    p.add_argument("--mix-interval", type=float, default=3.0)
    p.add_argument("--log-every", type=int, default=50)
    p.add_argument("--duration", type=float, default=125)
    p.add_argument("--walltime", type=int, default=135)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    signal.alarm(args.walltime)
    torch.set_num_threads(1)
    ctx = mp.get_context("fork")
    shards = [ModelShard(ctx, args.features, args.classes) for _ in range(args.learners)]
    mixer = LinearMixer(ctx, shards, args.mix_count, args.mix_interval)
    processes = [ctx.Process(target=Learner(r, s, mixer, args).run, name=f"learner-{r}", daemon=True)
                 for r, s in enumerate(shards)]
    processes.append(ctx.Process(target=mixer.run, args=(args.walltime,), name="mixer", daemon=True))
    for proc in processes:
        proc.start()
    log.info("%d learners started, mix every %d samples or %.0f s",
             args.learners, args.mix_count, args.mix_interval)
    monitor(mixer, processes, args)
    for proc in processes:
        proc.terminate()
        proc.join()


if __name__ == "__main__":
    main()
