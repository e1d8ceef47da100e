"""Cut recordings into clips and pack them into training shards."""
import argparse
import logging
import multiprocessing as mp
import queue
import signal
import tempfile
import time

import numpy as np

from shards import ShardWriter

log = logging.getLogger("ingest")


class Recorder:
    """Synthetic microphone array: a few tones and noise per recording."""

    def __init__(self, seed, rate=16_000, channels=2):
        self.rng = np.random.default_rng(seed)
        self.rate = rate
        self.channels = channels

    def clip(self, seconds):
        t = np.arange(int(seconds * self.rate), dtype=np.float32) / self.rate
        out = np.empty((self.channels, len(t)), dtype=np.float32)
        for c in range(self.channels):
            tones = self.rng.uniform(80, 4000, 3)
            out[c] = sum(np.sin(2 * np.pi * f * t) for f in tones) / 3
        out += 0.05 * self.rng.standard_normal(out.shape, dtype=np.float32)
        return out


def cutter(rank, args, clips):
    signal.alarm(args.walltime)
    recorder = Recorder(args.seed + rank)
    key = rank << 32
    while True:
        begun = time.monotonic()
        clips.put((key, recorder.clip(args.seconds)))
        key += 1
        time.sleep(max(0.0, 1.0 / args.rate - (time.monotonic() - begun)))


def writer(args, clips, folder, done):
    signal.alarm(args.walltime)
    shards = ShardWriter(folder, args.shard_mb, args.keep)
    count = 0
    while not done.is_set():
        try:
            key, clip = clips.get(timeout=1.0)
        except queue.Empty:
            continue
        shards.add(key, clip)
        count += 1
        if count % 50 == 0:
            log.info("%d clips, %.0f MB waiting for the next shard", count, shards.size / 2**20)
    shards.flush()


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--cutters", type=int, default=2)
    p.add_argument("--rate", type=float, default=3.0, help="clips per second and cutter")
    p.add_argument("--seconds", type=float, default=8.0)
    p.add_argument("--shard-mb", type=int, default=90)
    p.add_argument("--keep", type=int, default=2, help="shards kept on the scratch disk")
    p.add_argument("--duration", type=float, default=118)
    p.add_argument("--walltime", type=int, default=140)
    p.add_argument("--seed", type=int, default=11)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(name)s: %(message)s")
    signal.alarm(args.walltime)
    ctx = mp.get_context("fork")
    clips = ctx.Queue(maxsize=16)
    done = ctx.Event()
    with tempfile.TemporaryDirectory(prefix="shards-") as folder:
        sink = ctx.Process(target=writer, args=(args, clips, folder, done), name="writer", daemon=True)
        cutters = [ctx.Process(target=cutter, args=(r, args, clips), name=f"cutter-{r}", daemon=True)
                   for r in range(args.cutters)]
        for proc in (sink, *cutters):
            proc.start()
        end = time.monotonic() + args.duration
        while time.monotonic() < end:
            time.sleep(1.0)
            late = [proc.name for proc in (sink, *cutters) if not proc.is_alive()]
            if late:
                raise SystemExit(f"ended early: {late}")
        done.set()
        sink.join(10)
        for proc in cutters:
            proc.terminate()
            proc.join()
    log.info("ingest finished")


if __name__ == "__main__":
    main()
