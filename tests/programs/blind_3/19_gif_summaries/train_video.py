import argparse
import logging
import tempfile
import threading
import time

import numpy as np

from summary import SummaryWriter

log = logging.getLogger("video")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--side", type=int, default=64)
    ap.add_argument("--every", type=float, default=0.15)
    ap.add_argument("--max-time", type=float, default=90)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory(prefix="runs_", dir=".") as folder:
        writer = SummaryWriter(folder)
        state = rng.random((args.side, args.side, 3))
        start, step = time.time(), 0
        while time.time() - start < args.max_time:
            frames = []
            for _ in range(8):
                state = (state + 0.05 * rng.normal(size=state.shape)) % 1.0
                frames.append((state * 255).astype(np.uint8))
            t = threading.Thread(target=writer.add_video, args=("rollout", np.stack(frames), step))
            t.start()
            t.join()
            step += 1
            if step % 40 == 0:
                log.info("step %d mean %.3f", step, state.mean())
            time.sleep(args.every)


if __name__ == "__main__":
    main()
