"""Relax a set of clusters with forces from a model that lives in its own process."""
import argparse
import logging
import time

import numpy as np

from server import RootstockServer

log = logging.getLogger("relax")


def make_cluster(n_atoms, rng):
    side = int(np.ceil(n_atoms ** (1 / 3)))
    grid = np.stack(np.meshgrid(*[np.arange(side)] * 3), -1).reshape(-1, 3)[:n_atoms]
    return 1.35 * grid + 0.05 * rng.standard_normal((n_atoms, 3))


def relax(server, positions, steps, lr, fmax):
    velocity = np.zeros_like(positions)
    for step in range(steps):
        energy, forces = server.calculate(positions)
        biggest = np.abs(forces).max()
        if step % 20 == 0:
            log.info("  step %3d  E=%10.4f  fmax=%8.4f", step, energy, biggest)
        if biggest < fmax:
            break
        velocity = 0.8 * velocity + lr * np.clip(forces, -20, 20)
        positions = positions + velocity
        time.sleep(0.015)
    return positions, energy


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--clusters", type=int, default=200)
    p.add_argument("--atoms", type=int, default=64)
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--lr", type=float, default=2e-4)
    p.add_argument("--fmax", type=float, default=1e-3)
    p.add_argument("--model", default="pair-small")
    p.add_argument("--quiet-worker", action="store_true")
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    rng = np.random.default_rng(1)
    server = RootstockServer(args.model, ["Ar"] * args.atoms, verbose=not args.quiet_worker)
    server.start()
    for c in range(args.clusters):
        log.info("cluster %d", c)
        _, energy = relax(server, make_cluster(args.atoms, rng), args.steps, args.lr, args.fmax)
        log.info("cluster %d done: %.4f", c, energy)
    server.close()


if __name__ == "__main__":
    main()
