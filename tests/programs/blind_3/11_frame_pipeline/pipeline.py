import argparse
import logging
import multiprocessing as mp
import time

from stages import acquire, infer

log = logging.getLogger("pipeline")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--height", type=int, default=240)
    ap.add_argument("--width", type=int, default=320)
    ap.add_argument("--max-time", type=float, default=80)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    frames, results = mp.Queue(2), mp.Queue(2)
    procs = [mp.Process(target=acquire, args=(frames, args.height, args.width), name="acquire", daemon=True),
             mp.Process(target=infer, args=(frames, results), name="infer", daemon=True)]
    for p in procs:
        p.start()
    start, n = time.time(), 0
    while time.time() - start < args.max_time:
        data = results.get()
        n += 1
        log.info("frame %d score %.3f  %.2f fps", data.index, data.detections[0].score,
                 n / (time.time() - start))
    for p in procs:
        p.terminate()


if __name__ == "__main__":
    main()
