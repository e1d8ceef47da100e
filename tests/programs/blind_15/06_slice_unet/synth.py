import os

import numpy as np

from volume_io import write_volume


def write_cases(root, n, shape):
    rng = np.random.default_rng(0)
    zz, yy, xx = np.meshgrid(*[np.linspace(-1, 1, s, dtype=np.float32) for s in shape], indexing="ij")
    noise = rng.normal(0, 40, shape).astype(np.int16)
    for c in range(n):
        cz, cy, cx = rng.uniform(-0.4, 0.4, 3)
        r2 = (zz - cz) ** 2 + (yy - cy) ** 2 + (xx - cx) ** 2
        label = (r2 < 0.15).astype(np.int16)
        image = np.roll(noise, c * 7919) + label * 60
        write_volume(os.path.join(root, "case%03d_image.vol.gz" % c), image)
        write_volume(os.path.join(root, "case%03d_label.vol.gz" % c), label)
    return root
