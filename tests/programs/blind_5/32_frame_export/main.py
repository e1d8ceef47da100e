import argparse
import json
import logging
import multiprocessing as mp
import os
import tempfile
import time

from render import init_worker, render_frame

log = logging.getLogger("export")


class FrameWriter:
    """Appends one compact JSON record per frame."""

    def __init__(self, path):
        self.f = open(path, "w")
        self.count = 0

    def write(self, index, frame):
        rows = [[round(float(v), 4) for v in row] for row in frame]
        json.dump({"index": index, "shape": frame.shape, "rows": rows}, self.f)
        self.f.write("\n")
        self.count += 1

    def close(self):
        self.f.close()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--frames", type=int, default=1200)
    p.add_argument("--workers", type=int, default=1)
    p.add_argument("--out", default=None)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    with tempfile.TemporaryDirectory(prefix="frames_", dir=args.out) as out:
        writer = FrameWriter(os.path.join(out, "frames.jsonl"))
        t0 = time.time()
        with mp.Pool(args.workers, initializer=init_worker) as pool:
            for index, frame in pool.imap_unordered(render_frame, range(args.frames)):
                writer.write(index, frame)
                if writer.count % 5 == 0:
                    log.info("%d of %d frames written, %.1f frames/s", writer.count, args.frames,
                             writer.count / (time.time() - t0))
        writer.close()


if __name__ == "__main__":
    main()
