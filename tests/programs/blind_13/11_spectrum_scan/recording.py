import numpy as np


def write_recording(path, size_mb):
    rng = np.random.default_rng(5)
    block = rng.standard_normal(1 << 20).astype(np.float32)
    t = np.arange(block.size, dtype=np.float32)
    with open(path, "wb") as f:
        for i in range(size_mb // 4):
            tone = np.sin(t * np.float32(0.01 + 0.002 * (i % 50)))
            f.write((block + tone).tobytes())
