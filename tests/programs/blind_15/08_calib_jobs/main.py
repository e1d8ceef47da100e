"""Run calibration jobs for many observations with a few long-lived worker processes."""
import argparse
import logging
import multiprocessing as mp
import os
import tempfile
import time

from recipe import Recipe

log = logging.getLogger("calib")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--observations", type=int, default=100000)
    p.add_argument("--antennas", type=int, default=24)
    p.add_argument("--workdir", default=None)
    return p.parse_args()


def worker_main(tasks, done, workdir, antennas):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    while True:
        obs = tasks.get()
        if obs is None:
            return
        t0 = time.time()
        recipe = Recipe("obs%06d" % obs, workdir, antennas)
        recipe.add("flag")
        recipe.add("bandpass")
        recipe.add("gaincal")
        result = recipe.run()
        done.put((obs, result, time.time() - t0))


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    workdir = args.workdir or tempfile.mkdtemp(prefix="calib_")
    tasks, done = mp.Queue(8), mp.Queue()
    workers = [mp.Process(target=worker_main, name="calib-%d" % i, args=(tasks, done, workdir, args.antennas))
               for i in range(args.workers)]
    for w in workers:
        w.start()
    log.info("workers %s, logs in %s", [w.pid for w in workers], workdir)
    sent = received = 0
    while received < args.observations:
        while sent < args.observations and sent - received < 8:
            tasks.put(sent)
            sent += 1
        obs, chi2, dt = done.get()
        received += 1
        if received % 25 == 0:
            log.info("%d observations calibrated, last %06d chi2 %.3f in %.2f s", received, obs, chi2, dt)
    for _ in workers:
        tasks.put(None)
    for w in workers:
        w.join()


if __name__ == "__main__":
    main()
