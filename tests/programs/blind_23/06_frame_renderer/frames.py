import time

import numpy as np

from logs import get_logger


class Frame:
    """One picture of the animation with the parameters it was made from."""

    def __init__(self, number, size):
        self.log = get_logger("render.frame")
        self.number = number
        self.size = size
        self.feed = 0.03 + 0.02 * np.sin(number / 200)
        self.kill = 0.06 + 0.004 * np.cos(number / 300)
        self.log.debug("frame %d feed %.4f kill %.4f", number, self.feed, self.kill)

    def start_field(self):
        rng = np.random.default_rng(self.number)
        u = np.ones((self.size, self.size), np.float32)
        v = 0.05 * rng.random((self.size, self.size), dtype=np.float32)
        mid = slice(self.size // 2 - 4, self.size // 2 + 4)
        u[mid, mid], v[mid, mid] = 0.5, 0.25
        return u, v


def laplace(a):
    return (np.roll(a, 1, 0) + np.roll(a, -1, 0) + np.roll(a, 1, 1) + np.roll(a, -1, 1) - 4 * a)


class FrameRenderer:
    def __init__(self, index, size, substeps, folder):
        self.index = index
        self.size = size
        self.substeps = substeps
        self.folder = folder
        self.palette = (np.linspace(0, 1, 256)[:, None] ** np.array([0.6, 1.4, 2.5]) * 255).astype(np.uint8)

    def simulate(self, frame):
        u, v = frame.start_field()
        for step in range(self.substeps):
            reaction = u * v * v
            u += 0.16 * laplace(u) - reaction + frame.feed * (1 - u)
            v += 0.08 * laplace(v) + reaction - (frame.feed + frame.kill) * v
            frame.log.debug("frame %d substep %d u %.4f v %.4f", frame.number, step, u.mean(), v.mean())
        return v

    def colour(self, frame, v):
        low, high = float(v.min()), float(v.max())
        frame.log.debug("frame %d range %.4f .. %.4f", frame.number, low, high)
        index = ((v - low) / max(high - low, 1e-6) * 255).astype(np.uint8)
        return self.palette[index]

    def render(self, number):
        began = time.perf_counter()
        frame = Frame(number, self.size)
        picture = self.colour(frame, self.simulate(frame))
        path = self.folder / f"worker_{self.index}_latest.ppm"
        with open(path, "wb") as out:
            out.write(b"P6 %d %d 255\n" % (self.size, self.size) + picture.tobytes())
        frame.log.info("frame %d written in %.1f ms", number, 1e3 * (time.perf_counter() - began))
        return number
