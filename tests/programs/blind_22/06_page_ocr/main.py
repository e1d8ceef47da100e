"""Read the pages of a scanned video, frame by frame, with a pool of OCR workers."""
import argparse
import collections
import logging
import multiprocessing as mp
import time

import numpy as np

from engine import ALPHABET, GLYPH, TEMPLATES, page_to_lines

log = logging.getLogger("ocr")


class FrameSource:
    """Renders frames at a fixed rate, like a capture card would deliver them."""

    def __init__(self, rows, cols, fps, duration, seed=4):
        self.rows, self.cols = rows, cols
        self.period = 1.0 / fps
        self.duration = duration
        self.rng = np.random.default_rng(seed)

    def render(self):
        ids = self.rng.integers(0, len(ALPHABET), size=(self.rows, self.cols))
        page = TEMPLATES[ids].swapaxes(1, 2).reshape(self.rows * GLYPH, self.cols * GLYPH)
        noise = self.rng.normal(scale=0.05, size=page.shape)
        return (np.clip(page + noise, 0, 1) * 255).astype(np.uint8)

    def __iter__(self):
        start = due = time.monotonic()
        number = 0
        while time.monotonic() - start < self.duration:
            yield number, self.render()
            number += 1
            due += self.period
            time.sleep(max(0.0, due - time.monotonic()))


def init_worker(level):
    logging.basicConfig(level=level, format="%(asctime)s %(processName)s %(message)s")


def read_frame(job):
    number, page = job
    lines, confidence = page_to_lines(page)
    return number, lines, confidence


class Transcript:
    def __init__(self, keep):
        self.recent = collections.deque(maxlen=keep)
        self.letters = collections.Counter()
        self.frames = 0

    def add(self, number, lines, confidence):
        self.frames += 1
        self.recent.append((number, confidence))
        for line in lines:
            self.letters.update(line)

    def summary(self):
        mean = sum(c for _, c in self.recent) / len(self.recent)
        return f"{self.frames} frames, confidence {mean:.1f}, commonest {self.letters.most_common(1)[0][0]!r}"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--rows", type=int, default=30)
    p.add_argument("--cols", type=int, default=40)
    p.add_argument("--fps", type=float, default=20)
    p.add_argument("--duration", type=float, default=125)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")

    source = FrameSource(args.rows, args.cols, args.fps, args.duration)
    transcript = Transcript(keep=200)
    window = collections.deque()
    with mp.get_context("spawn").Pool(args.workers, init_worker, (logging.INFO,)) as pool:
        for job in source:
            window.append(pool.apply_async(read_frame, (job,)))
            while window and (window[0].ready() or len(window) > 8 * args.workers):
                transcript.add(*window.popleft().get())
                if transcript.frames % 100 == 0:
                    log.info(transcript.summary())
        while window:
            transcript.add(*window.popleft().get())
    log.info("end of recording: %s", transcript.summary())


if __name__ == "__main__":
    main()
