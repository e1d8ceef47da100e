import time
from dataclasses import dataclass

import numpy as np

SIZE = 512
_grid = None
_scale = None


@dataclass(frozen=True)
class TileSpec:
    zoom: int
    x: int
    y: int


def calibrate(seconds):
    """Least squares fit of the lens polynomial from ground control points."""
    rng = np.random.default_rng(1)
    r = rng.random(4000)
    target = 1 + 0.12 * r ** 2 - 0.03 * r ** 4
    deadline = time.time() + seconds
    coeffs = np.zeros(3)
    while time.time() < deadline:
        a = np.stack([np.ones_like(r), r ** 2, r ** 4], axis=1)
        coeffs, *_ = np.linalg.lstsq(a, target + rng.normal(0, 1e-3, r.size), rcond=None)
        time.sleep(0.05)
    return tuple(float(round(c, 5)) for c in coeffs)


def init_renderer(params):
    global _grid, _scale
    yy, xx = np.mgrid[0:SIZE, 0:SIZE].astype(np.float32) / SIZE
    r2 = (xx - 0.5) ** 2 + (yy - 0.5) ** 2
    _grid = xx[0], yy[:, 0]
    _scale = (params[0] + params[1] * r2 + params[2] * r2 * r2) * 90


def render_tile(spec):
    x, y = _grid
    base = np.outer(np.cos((y + spec.y) * 5.3), np.sin((x + spec.x) * 7.1)) * _scale + 128
    pixels = np.empty((SIZE, SIZE, 4), dtype=np.uint8)
    pixels[..., :3] = base.astype(np.uint8)[..., None]
    pixels[..., 3] = 255
    time.sleep(0.18)
    return spec, pixels
