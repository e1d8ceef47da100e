import asyncio
import os
from concurrent.futures import ProcessPoolExecutor

import numpy as np


def render(step, points, size, out_dir, keep):
    """Draws the points as a strip of frames, stores it and removes the oldest ones."""
    grid = np.linspace(-1.5, 1.5, size, dtype=np.float32)
    frames = np.empty((len(points), size, size), dtype=np.uint8)
    for i, (x, y) in enumerate(points):
        dist = (grid[None, :] - x) ** 2 + (grid[:, None] - y) ** 2
        frames[i] = (255 * np.exp(-dist / 0.02)).astype(np.uint8)
    np.save(os.path.join(out_dir, f"preview_{step:08d}.npy"), frames)
    for name in sorted(os.listdir(out_dir))[:-keep]:
        try:
            os.remove(os.path.join(out_dir, name))
        except FileNotFoundError:
            pass
    return step, frames


class PreviewService:
    """Fire and forget rendering next to the training loop."""

    def __init__(self, out_dir, workers, keep, size=128):
        self.out_dir = out_dir
        self.keep = keep
        self.size = size
        self.submitted = 0
        self.latest = None
        self.pool = ProcessPoolExecutor(max_workers=workers)
        self.loop = asyncio.new_event_loop()

    def submit(self, step, points):
        fut = self.loop.run_in_executor(self.pool, render, step, points, self.size, self.out_dir, self.keep)
        fut.add_done_callback(self._rendered)
        self.submitted += 1

    def _rendered(self, fut):
        if not fut.cancelled() and fut.exception() is None:
            self.latest = fut.result()

    def on_disk(self):
        return len(os.listdir(self.out_dir))
