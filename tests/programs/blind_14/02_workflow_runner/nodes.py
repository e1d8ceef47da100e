"""The work of the nodes; runs in the pool's processes."""
import time

import numpy as np


def realign(name, seed, seconds):
    rng = np.random.default_rng(seed)
    image = rng.normal(size=(48, 48, 24))
    end = time.monotonic() + seconds
    shift = np.zeros(3)
    while time.monotonic() < end:
        spectrum = np.fft.fftn(image)
        shift += np.abs(spectrum[:3, 0, 0]) * 1e-6
        time.sleep(0.02)
    return {"node": name, "shift": shift.tolist()}


def smooth(name, seed, seconds):
    rng = np.random.default_rng(seed)
    image = rng.normal(size=(48, 48, 24))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        image = (image + np.roll(image, 1, 0) + np.roll(image, 1, 1)) / 3
        time.sleep(0.02)
    return {"node": name, "std": float(image.std())}


def identity(name, seed, seconds):
    return {"node": name, "fields": ["subject_id", "session_id"]}


INTERFACES = {"realign": realign, "smooth": smooth, "identity": identity}


def run_node(spec):
    return INTERFACES[spec["interface"]](spec["name"], spec["seed"], spec["seconds"])
