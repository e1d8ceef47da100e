"""Bird call detector: one reader, several analysers on a shared ring, a watchdog that replaces slow ones."""
import argparse
import atexit
import logging
import multiprocessing as mp
import time

import numpy as np

from ring import Ring

log = logging.getLogger("detect")


def spectrum(samples):
    """Block-wise power spectrum, copied out of the ring."""
    out = []
    for start in range(0, len(samples) - 1024, 1024):
        out.append(np.abs(np.fft.rfft(samples[start:start + 1024] * np.hanning(1024))) ** 2)
        if start % 16384 == 0:
            time.sleep(0.02)
    return np.array(out)


def reader(ring, recordings, rate):
    rng = np.random.default_rng(5)
    for n in range(recordings):
        seconds = 120 if n == 17 else 1
        ring.push(rng.standard_normal(seconds * rate).astype(np.float32))
        time.sleep(0.05)


def analyser(index, ring, beats, found):
    while True:
        power = ring.take(spectrum)
        beats[index] = time.monotonic()
        if power is None:
            time.sleep(0.02)
            continue
        peak = power.mean(0).argmax()
        with found.get_lock():
            found.value += 1
        time.sleep(0.05 + 0.0001 * peak)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--analysers", type=int, default=3)
    p.add_argument("--recordings", type=int, default=2000)
    p.add_argument("--rate", type=int, default=48000)
    p.add_argument("--max-seconds", type=float, default=3.0)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")

    ctx = mp.get_context("fork")
    ring = Ring(ctx, slots=16, samples=120 * args.rate)
    atexit.register(ring.close)
    beats, found = ctx.Array("d", [time.monotonic()] * args.analysers, lock=False), ctx.Value("l", 0)

    def start(i):
        beats[i] = time.monotonic()
        proc = ctx.Process(target=analyser, args=(i, ring, beats, found), name=f"analyser-{i}", daemon=True)
        proc.start()
        return proc

    procs = [start(i) for i in range(args.analysers)]
    feed = ctx.Process(target=reader, args=(ring, args.recordings, args.rate), name="reader", daemon=True)
    feed.start()
    replaced = 0
    while found.value < args.recordings:
        time.sleep(0.5)
        late = [i for i in range(args.analysers) if time.monotonic() - beats[i] > args.max_seconds]
        if late and replaced < args.analysers:
            i = min(late, key=lambda k: beats[k])
            log.warning("analyser %d over %.0f s, replacing it", i, args.max_seconds)
            procs[i].kill()
            procs[i].join()
            procs[i] = start(i)
            replaced += 1
        log.info("%d recordings analysed", found.value)


if __name__ == "__main__":
    main()
