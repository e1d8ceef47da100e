"""Turns a book with several speakers into audio, chapter by chapter."""
import argparse
import logging
import os
import random
import tempfile
import threading
import time

from studio import Studio
from voices import write_voice_pack

log = logging.getLogger("book")
VOICES = ("aria", "bram", "cleo")
WORDS = "the captain said nothing while rain fell over harbour lights and a distant bell rang twice".split()


class Book:
    def __init__(self, chapters, lines, seed):
        self.count, self.lines = chapters, lines
        self.rng = random.Random(seed)

    def chapters(self):
        for number in range(1, self.count + 1):
            yield number, [(self.rng.choice(VOICES), " ".join(self.rng.choices(WORDS, k=self.rng.randint(6, 18))))
                           for _ in range(self.lines)]


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--chapters", type=int, default=400)
    p.add_argument("--lines", type=int, default=40)
    p.add_argument("--pause", type=float, default=0.4, help="between chapters, for the encoder")
    p.add_argument("--seed", type=int, default=17)
    p.add_argument("--limit", type=float, default=130.0)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [%(process)d] %(name)s %(message)s")
    home = tempfile.mkdtemp(prefix="book-")
    pack, logs = os.path.join(home, "voices"), os.path.join(home, "logs")
    os.makedirs(logs)
    write_voice_pack(pack, VOICES, with_style=("aria", "bram"))
    studio = Studio(VOICES, pack, logs, args.limit)
    timer = threading.Timer(args.limit, os._exit, args=(0,))
    timer.daemon = True
    timer.start()
    seconds = 0.0
    for number, lines in Book(args.chapters, args.lines, args.seed).chapters():
        began = time.perf_counter()
        lengths = studio.record(lines)
        seconds += sum(lengths) / 8000
        log.info("chapter %d: %d lines in %.1fs, %.0f minutes of audio so far", number, len(lines),
                 time.perf_counter() - began, seconds / 60)
        time.sleep(args.pause)
    studio.close()


if __name__ == "__main__":
    main()
