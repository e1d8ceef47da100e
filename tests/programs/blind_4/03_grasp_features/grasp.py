"""Signed-distance features for candidate grasps; scene once in the parent, one planner process per object."""
import argparse
import logging
import time
from multiprocessing import Process, Queue

import numpy as np
import torch

log = logging.getLogger("grasp")


class SceneGrid:
    def __init__(self, resolution):
        axis = np.linspace(-1.0, 1.0, resolution)
        self.points = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), -1).reshape(-1, 3)

    def distances(self, center, radius):
        offsets = torch.from_numpy(self.points - center).float()
        return offsets.pow(2).sum(1).sqrt() - radius


class GraspPlanner:
    def __init__(self, grid, candidates=64):
        self.grid = grid
        self.candidates = candidates

    def plan(self, name, center, radius):
        sdf = self.grid.distances(center, radius)
        surface = torch.nonzero(sdf.abs() < 0.02).flatten()
        pick = surface[torch.randperm(len(surface))[: self.candidates]]
        score = torch.exp(-sdf[pick].abs() * 50)
        return name, int(pick[score.argmax()]), float(score.max())


def plan_in_process(planner, name, center, radius, out):
    logging.info("planning %s", name)
    out.put(planner.plan(name, center, radius))


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--resolution", type=int, default=64)
    p.add_argument("--threads", type=int, default=2)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [%(processName)s] %(message)s")
    torch.set_num_threads(args.threads)

    planner = GraspPlanner(SceneGrid(args.resolution))
    started = time.monotonic()
    _, index, score = planner.plan("table", np.array([0.0, 0.0, -0.2]), 0.5)
    log.info("reference object done in %.2fs (grasp %d, %.3f)", time.monotonic() - started, index, score)

    objects = {"mug": ([0.3, 0.1, 0.0], 0.2), "box": ([-0.4, 0.2, 0.1], 0.3)}
    out, procs = Queue(), []
    for name, (center, radius) in objects.items():
        proc = Process(target=plan_in_process, name=f"plan-{name}", args=(planner, name, np.array(center), radius, out))
        proc.start()
        procs.append(proc)
    for _ in procs:
        name, index, score = out.get()
        log.info("%s: grasp %d score %.3f", name, index, score)
    for proc in procs:
        proc.join()


if __name__ == "__main__":
    main()
