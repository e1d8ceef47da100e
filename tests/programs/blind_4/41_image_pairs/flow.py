"""Cross-correlation flow estimates on synthetic image pairs, generated ahead by three processes."""
import argparse
import logging
import multiprocessing as mp
import time

import numpy as np

from generator import generate

log = logging.getLogger("flow")


def estimate(pair):
    corr = np.fft.ifft2(np.fft.fft2(pair[1]) * np.conj(np.fft.fft2(pair[0]))).real
    peak = np.array(np.unravel_index(corr.argmax(), corr.shape))
    return np.where(peak > np.array(corr.shape) // 2, peak - np.array(corr.shape), peak)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--pairs", type=int, default=170)
    p.add_argument("--size", type=int, default=128)
    p.add_argument("--ahead", type=int, default=12)
    p.add_argument("--seconds-per-pair", type=float, default=0.5, help="time of the downstream solver")
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    queue = mp.Queue(args.ahead)
    procs = [mp.Process(target=generate, args=(s, args.size, queue), daemon=True, name=f"generator-{s}")
             for s in range(3)]
    for proc in procs:
        proc.start()
    errors = []
    for n in range(1, args.pairs + 1):
        pair, shift = queue.get()
        errors.append(float(np.abs(estimate(pair) - shift).sum()))
        time.sleep(args.seconds_per_pair)
        if n % 20 == 0:
            log.info("%d pairs, mean error %.3f", n, np.mean(errors))
    for proc in procs:
        proc.terminate()
        proc.join()


if __name__ == "__main__":
    main()
