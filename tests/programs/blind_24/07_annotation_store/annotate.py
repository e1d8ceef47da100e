"""Pre-annotation: a cheap detector proposes boxes, people correct them later."""
import logging
import time

import numpy as np

from store import AnnotationStore


class BlobDetector:
    def __init__(self, cell=16, threshold=1.15):
        self.cell, self.threshold = cell, threshold

    def __call__(self, img):
        h, w = img.shape
        c = self.cell
        means = img[:h // c * c, :w // c * c].reshape(h // c, c, w // c, c).mean((1, 3))
        hot = np.argwhere(means > self.threshold * means.mean())
        return [{"x": int(j) * c, "y": int(i) * c, "w": c, "h": c, "score": round(float(means[i, j]), 3)}
                for i, j in hot[:24]]


def synthetic_image(rng, size=256):
    img = rng.random((size, size))
    for _ in range(rng.integers(3, 9)):
        r, c = rng.integers(0, size - 40, 2)
        img[r:r + 32, c:c + 32] += rng.random() * 0.8 + 0.3
    return img


def annotate(slot, folder, images, pause):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [annotator {slot}] %(message)s", force=True)
    log = logging.getLogger("annotate")
    detector, store = BlobDetector(), AnnotationStore(folder)
    rng = np.random.default_rng(slot)
    began = time.monotonic()
    for n, image_id in enumerate(images, 1):
        boxes = detector(synthetic_image(rng))
        store.add(image_id, boxes, author=f"auto-{slot}")
        if n % 10 == 0:
            log.info("%d images, %.1f per second", n, n / (time.monotonic() - began))
        time.sleep(pause)
    log.info("finished")
