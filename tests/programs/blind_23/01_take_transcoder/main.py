"""Convert a folder of studio takes (wav) to the compressed container used by the training set.

Speakers are recorded into one sub-folder each; the converted takes all go to one flat folder that
the data loader reads.
"""
import argparse
import logging
import multiprocessing as mp
import os
import tempfile
import threading
import time
from pathlib import Path

from jobs import TranscodeWorker
from studio import record_session

log = logging.getLogger("transcoder")


def setup_logging(level):
    logging.basicConfig(level=level, format="%(asctime)s %(processName)s %(name)s %(levelname)s %(message)s")


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--speakers", type=int, default=6)
    p.add_argument("--takes", type=int, default=4)
    p.add_argument("--seconds", type=float, default=6.0, help="length of one take")
    p.add_argument("--rate", type=int, default=16000, help="sample rate of the output")
    p.add_argument("--max-runtime", type=float, default=135.0, help="batch window of the night job, seconds")
    return p.parse_args()


class Summary:
    def __init__(self, total):
        self.total = total
        self.done = 0
        self.failed = []
        self.audio_seconds = 0.0
        self.started = time.monotonic()

    def add(self, result):
        self.done += 1
        if result.returncode != 0:
            self.failed.append(result.source)
            log.warning("%s: converter said %s", result.source, result.tail)
        else:
            self.audio_seconds += result.seconds

    def report(self):
        wall = time.monotonic() - self.started
        log.info("%d/%d takes, %.1f s of audio in %.1f s, %d failed",
                 self.done, self.total, self.audio_seconds, wall, len(self.failed))


def end_of_window(seconds):
    time.sleep(seconds)
    log.error("batch window is over, leaving")
    os._exit(3)


def main():
    args = parse_args()
    setup_logging(logging.INFO)
    threading.Thread(target=end_of_window, args=(args.max_runtime,), daemon=True).start()

    with tempfile.TemporaryDirectory(prefix="takes_") as root:
        source_dir = Path(root, "session")
        target_dir = Path(root, "dataset")
        target_dir.mkdir()
        takes = record_session(source_dir, args.speakers, args.takes, args.seconds)
        log.info("session has %d takes of %d speakers", len(takes), args.speakers)

        todo, results = mp.Queue(), mp.Queue()
        for take in takes:
            todo.put(take)
        for _ in range(args.workers):
            todo.put(None)

        workers = [TranscodeWorker(i, todo, results, target_dir, args.rate) for i in range(args.workers)]
        for w in workers:
            w.start()

        summary = Summary(len(takes))
        while summary.done < summary.total:
            summary.add(results.get())
            summary.report()
        for w in workers:
            w.join()
    log.info("dataset complete")


if __name__ == "__main__":
    main()
