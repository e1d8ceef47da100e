"""First level analysis: slice timing, smoothing and GLM of every run of every subject."""
import argparse
import itertools
import logging
import os
import threading
import time

import numpy as np
import torch

from workers import Submitter

log = logging.getLogger("firstlevel")


def load_bold(subject, run, shape, frames):
    """Fetches one run from the study archive."""
    time.sleep(0.25)
    rng = np.random.default_rng(1000 * subject + run)
    return rng.normal(100, 8, (frames,) + shape).astype(np.float32)


def smooth(volumes, fwhm):
    sigma = fwhm / 2.355
    radius = int(3 * sigma) + 1
    t = torch.arange(-radius, radius + 1, dtype=torch.float32)
    k = torch.exp(-t ** 2 / (2 * sigma ** 2))
    k = k / k.sum()
    x = torch.from_numpy(volumes)[:, None]
    for axis in range(3):
        shape = [1, 1, 1, 1, 1]
        shape[2 + axis] = k.numel()
        pad = [0, 0, 0]
        pad[axis] = radius
        x = torch.nn.functional.conv3d(x, k.view(shape), padding=pad)
    return x[:, 0].numpy()


def glm(volumes, tr):
    frames = volumes.shape[0]
    t = np.arange(frames) * tr
    design = np.stack([np.ones(frames), t / t.max(), np.sin(2 * np.pi * t / 40) > 0], 1).astype(np.float32)
    flat = volumes.reshape(frames, -1)
    beta, *_ = np.linalg.lstsq(design, flat, rcond=None)
    resid = flat - design @ beta
    return beta[2] / (resid.std(0) + 1e-6)


def first_level(subject, run, fwhm=4.0, tr=2.0, shape=(40, 40, 24), frames=24):
    torch.set_num_threads(1)
    started = time.time()
    bold = load_bold(subject, run, shape, frames)
    bold = bold[np.argsort(np.arange(frames))]
    tmap = glm(smooth(bold, fwhm), tr)
    return {
        "subject": subject, "run": run, "peak": float(np.abs(tmap).max()),
        "voxels": int((np.abs(tmap) > 0.5).sum()), "seconds": time.time() - started, "pid": os.getpid(),
    }


class Node:
    def __init__(self, name, interface):
        self.name, self.interface = name, interface
        self.outputs = {}
        self.inputs = {}
        self.started = time.time()

    def split(self, **axes):
        self.inputs = axes
        return self

    def states(self):
        keys = list(self.inputs)
        for values in itertools.product(*self.inputs.values()):
            yield dict(zip(keys, values))

    def set_output(self, index, output):
        self.outputs[index] = output
        if len(self.outputs) % 5 == 0:
            rate = len(self.outputs) / (time.time() - self.started)
            log.info("%s: %d runs done, %.2f runs/s, last sub-%03d run-%d took %.2f s in %d", self.name,
                     len(self.outputs), rate, output["subject"], output["run"], output["seconds"], output["pid"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--subjects", type=int, default=120)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--plugin", default="cf")
    parser.add_argument("--nr-proc", type=int, default=4)
    parser.add_argument("--walltime", type=float, default=130)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")

    node = Node("firstlevel", first_level).split(
        subject=list(range(1, args.subjects + 1)), run=list(range(1, args.runs + 1))
    )
    plugin_args = {"nr_proc": args.nr_proc} if args.plugin == "cf" else {}
    with Submitter(args.plugin, **plugin_args) as sub:
        def out_of_time():
            log.info("walltime used up with %d runs done", len(node.outputs))
            for p in list(getattr(sub.worker.pool, "_processes", None) or {}):
                os.kill(p, 9)
            os._exit(0)

        timer = threading.Timer(args.walltime, out_of_time)
        timer.daemon = True
        timer.start()
        sub.submit(node)
    peaks = [o["peak"] for o in node.outputs.values()]
    log.info("done, mean peak %.3f", sum(peaks) / len(peaks))


if __name__ == "__main__":
    main()
