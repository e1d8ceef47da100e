"""Render an animation of a reaction-diffusion field, frames spread over several processes."""
import argparse
import logging
import multiprocessing as mp
import os
import queue
import tempfile
import threading
import time
from pathlib import Path

from frames import FrameRenderer
from logs import LogCollector, get_logger


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--processes", type=int, default=3)
    p.add_argument("--frames", type=int, default=20000)
    p.add_argument("--size", type=int, default=48)
    p.add_argument("--substeps", type=int, default=24)
    p.add_argument("--report-every", type=float, default=5.0)
    p.add_argument("--time-limit", type=float, default=125.0)
    return p.parse_args()


class Progress:
    """Counts finished frames and says how fast they come."""

    def __init__(self, total, every):
        self.total = total
        self.every = every
        self.done = self.last_done = 0
        self.started = self.last = time.monotonic()
        self.log = get_logger("render.progress")

    def add(self, n):
        self.done += n
        now = time.monotonic()
        if now - self.last >= self.every:
            rate = (self.done - self.last_done) / (now - self.last)
            left = (self.total - self.done) / max(rate, 1e-6)
            print(f"{time.strftime('%X')} {self.done}/{self.total} frames, {rate:.1f} frames/s, "
                  f"{left / 60:.0f} min left", flush=True)
            self.log.info("progress %d of %d", self.done, self.total)
            self.last, self.last_done = now, self.done


def render_process(index, tickets, finished, args, folder, port):
    os.environ["RENDER_LOG_PORT"] = str(port)
    renderer = FrameRenderer(index, args.size, args.substeps, folder)
    while True:
        try:
            number = tickets.get(timeout=5.0)
        except queue.Empty:
            break
        if number is None:
            break
        finished.put(renderer.render(number))


def feed(tickets, total, processes):
    for number in range(total):
        tickets.put(number)
    for _ in range(processes):
        tickets.put(None)


def main():
    args = parse_args()
    collector = LogCollector()
    collector.start()
    os.environ["RENDER_LOG_PORT"] = str(collector.port)

    with tempfile.TemporaryDirectory(prefix="render_") as folder:
        tickets, finished = mp.Queue(maxsize=4 * args.processes), mp.Queue()
        processes = [mp.Process(target=render_process, name=f"render-{i}", daemon=True,
                                args=(i, tickets, finished, args, Path(folder), collector.port))
                     for i in range(args.processes)]
        for p in processes:
            p.start()
        threading.Thread(target=feed, args=(tickets, args.frames, args.processes), daemon=True).start()

        progress = Progress(args.frames, args.report_every)
        deadline = time.monotonic() + args.time_limit
        while progress.done < args.frames and time.monotonic() < deadline:
            try:
                finished.get(timeout=1.0)
            except queue.Empty:
                continue
            progress.add(1)
        print(f"stopping after {progress.done} frames", flush=True)
        for p in processes:
            p.terminate()
            p.join()
    collector.stop()


if __name__ == "__main__":
    logging.raiseExceptions = False
    main()
