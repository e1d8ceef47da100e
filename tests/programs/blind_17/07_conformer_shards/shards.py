import json
import random
import time
from pathlib import Path

import numpy as np

from timeouts import timeout

ELEMENTS = ["C", "N", "O", "S", "F", "Cl", "P"]


def write_sample_shards(directory, count, molecules, seed=21):
    """Sample shards; one of them still has the header of the first version of the format."""
    rng = random.Random(seed)
    paths = []
    for i in range(count):
        path = Path(directory) / f"shard_{i:04d}.mol"
        header = {"version": 2, "count": molecules, "charges": "gasteiger"}
        with open(path, "w") as f:
            f.write(f"#v1 {molecules} mols\n" if i == 1 else json.dumps(header) + "\n")
            for _ in range(molecules):
                atoms = [rng.choice(ELEMENTS) for _ in range(rng.randint(8, 24))]
                f.write(" ".join(atoms) + "\n")
        paths.append(str(path))
    return paths


@timeout(12, "the shard header could not be read")
def read_header(path):
    """Headers live on network storage, which sometimes stalls."""
    with open(path) as f:
        return json.loads(f.readline())


def open_shard(path, log):
    try:
        header = read_header(path)
    except ValueError as exc:
        log.warning("%s: not a version 2 header (%s), counting its molecules", path, exc)
        with open(path) as f:
            header = {"version": 1, "count": sum(1 for _ in f) - 1, "charges": None}
    return header


def molecules(path):
    with open(path) as f:
        next(f)
        for line in f:
            yield line.split()


def embed_conformer(atoms, steps=60, seed=0):
    """Distance-geometry style relaxation of random coordinates."""
    rng = np.random.default_rng(seed)
    n = len(atoms)
    xyz = rng.normal(size=(n, 3)) * 2
    for _ in range(steps):
        delta = xyz[:, None] - xyz[None]
        dist = np.linalg.norm(delta, axis=-1) + np.eye(n)
        force = ((dist - 1.5) / dist)[..., None] * delta
        xyz -= 0.01 * force.sum(1)
    time.sleep(0.1)
    return xyz.astype(np.float32)
