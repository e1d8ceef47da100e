import json
import time
import traceback
import zlib

import numpy as np

from skip import SkipSample


def augment(image, rng):
    if rng.random() < 0.5:
        image = image[:, ::-1]
    noise = rng.normal(scale=4, size=image.shape)
    return np.clip(image + noise, 0, 255)


def sample_loader(line, rng):
    try:
        raw = json.loads(line)
        image = np.frombuffer(zlib.decompress(bytes.fromhex(raw["image"])), np.uint8).reshape(raw["shape"])
        image = augment(image, rng)
        time.sleep(0.004)
        words = [zlib.crc32(w.encode()) % 1000 + 1 for w in raw["caption"].split()]
        return dict(__key__=raw["__key__"], image=(image / 255).astype(np.float32).transpose(2, 0, 1),
                    caption=np.array((words + [0] * 8)[:8]))
    except Exception as e:
        print("=" * 80)
        print("[WARNING] Data Conversion Failed.")
        print(traceback.format_exc())
        print("=" * 80, flush=True)
        raise SkipSample(e)
