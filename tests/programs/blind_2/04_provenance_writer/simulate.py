import argparse
import logging
import tempfile

import numpy as np

from provenance import WriteBuffer


def advance(state, rng, dt=0.01):
    force = -state[0] + 0.1 * rng.standard_normal(state.shape[1])
    state[1] += dt * force
    state[0] += dt * state[1]
    return state


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=400_000)
    p.add_argument("--particles", type=int, default=64)
    p.add_argument("--out", default=tempfile.gettempdir() + "/provenance.jsonl")
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    rng = np.random.default_rng(3)
    buf = WriteBuffer(args.out)
    state = np.zeros((2, args.particles))
    for step in range(args.steps):
        state = advance(state, rng)
        buf.append("step", {"n": step, "x": np.round(state[0], 4).tolist()})
        if step % 500 == 0:
            logging.info("step %d energy %.4f flushes %d", step, float((state**2).sum()), buf.flushes)


if __name__ == "__main__":
    main()
