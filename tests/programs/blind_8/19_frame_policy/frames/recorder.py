import os

import numpy as np


def record_demos(root, demos, frames):
    paths = []
    ramp = np.arange(96, dtype=np.uint16)
    for d in range(demos):
        rng = np.random.default_rng(d)
        shift = np.arange(frames, dtype=np.uint16)[:, None, None, None]
        rgb = (ramp[None, :, None, None] + ramp[None, None, :, None] * 2 + shift) % 251
        rgb = np.repeat(rgb, 3, axis=3).astype(np.uint8)
        rgb[:, ::8] ^= rng.integers(0, 8, rgb[:, ::8].shape, dtype=np.uint8)
        path = os.path.join(root, f"demo_{d:03d}.npz")
        np.savez_compressed(path, rgb=rgb, action=rng.standard_normal((frames, 4)).astype(np.float32))
        paths.append(path)
    return paths
