import argparse
import logging
import multiprocessing as mp
import time

import numpy as np

from shm_frames import attach, publish

log = logging.getLogger("track")


def camera(queue, fps, side):
    rng = np.random.default_rng(0)
    index = 0
    while True:
        frame = rng.integers(0, 255, (side, side, 3), dtype=np.uint8)
        queue.put((index, publish(frame)))
        index += 1
        time.sleep(1 / fps)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--fps", type=float, default=12)
    ap.add_argument("--side", type=int, default=320)
    ap.add_argument("--max-time", type=float, default=90)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    queue = mp.Queue(4)
    cam = mp.Process(target=camera, args=(queue, args.fps, args.side), name="camera", daemon=True)
    cam.start()
    start, background = time.time(), None
    while time.time() - start < args.max_time:
        index, ref = queue.get()
        frame = attach(ref).astype(np.float32)
        background = frame if background is None else 0.95 * background + 0.05 * frame
        if index % 60 == 0:
            log.info("frame %d moving %.3f", index, float((abs(frame - background) > 120).mean()))
    cam.terminate()
    cam.join()


if __name__ == "__main__":
    main()
