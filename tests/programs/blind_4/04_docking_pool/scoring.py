import hashlib
import time

import numpy as np


class PoseError(Exception):
    """A ligand pose that cannot be scored."""

    def __init__(self, ligand, pose):
        super().__init__(f"{ligand['name']}: pose {pose} leaves the box")


def score_ligand(ligand):
    seed = int(hashlib.sha1(ligand["name"].encode()).hexdigest()[:8], 16)
    rng = np.random.default_rng(seed)
    atoms = rng.normal(scale=ligand["spread"], size=(ligand["atoms"], 3))
    best = np.inf
    for pose in range(24):
        angle = pose * np.pi / 12
        rot = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
        coords = atoms @ rot.T
        if np.abs(coords).max() > 12.0:
            raise PoseError(ligand, pose)
        dist = np.linalg.norm(coords[:, None] - coords[None], axis=-1) + np.eye(len(coords))
        best = min(best, float((1.0 / dist ** 2).sum()))
        time.sleep(0.01)
    return ligand["name"], best
