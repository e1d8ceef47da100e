"""Graph embedding trainer, talks to the key-value store."""
import argparse
import logging
import multiprocessing.connection as mpc
import time

import numpy as np


def connect(address, attempts):
    delay = 0.5
    for attempt in range(1, attempts + 1):
        try:
            return mpc.Client(address, "AF_UNIX")
        except (FileNotFoundError, ConnectionRefusedError) as exc:
            logging.warning("store not reachable (%s), attempt %d/%d", exc.__class__.__name__, attempt, attempts)
            time.sleep(delay)
            delay = min(delay * 1.5, 5.0)
    raise SystemExit("store did not come up")


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--address", required=True)
    p.add_argument("--rank", type=int, required=True)
    p.add_argument("--steps", type=int, default=900)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [trainer {args.rank}] %(message)s")
    conn = connect(args.address, attempts=40)
    rng = np.random.default_rng(args.rank)
    for step in range(args.steps):
        ids = rng.integers(0, 80000, 64)
        conn.send(("pull", ids, None))
        rows = conn.recv()
        conn.send(("push", ids, -0.01 * (rows - rows.mean(0))))
        if step % 100 == 0:
            logging.info("step %d norm %.4f", step, np.linalg.norm(rows, axis=1).mean())
        time.sleep(0.05)


if __name__ == "__main__":
    main()
