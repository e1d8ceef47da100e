"""Self-play training: actors play games with the newest model, the learner improves it."""
import argparse
import logging
import multiprocessing as mp
import os
import signal
import tempfile
import threading

import torch

from actor import actor_main
from learner import Learner


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--actors", type=int, default=3)
    parser.add_argument("--games-per-actor", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--epsilon", type=float, default=0.15)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--poll", type=float, default=0.05)
    parser.add_argument("--max-seconds", type=float, default=130.0)
    return parser.parse_args()


def out_of_time(signum, frame):
    raise TimeoutError


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    signal.signal(signal.SIGTERM, out_of_time)
    with tempfile.TemporaryDirectory(prefix="selfplay_") as root:
        for name in ("models", "games"):
            os.makedirs(os.path.join(root, name))
        ctx = mp.get_context("spawn")
        actors = [ctx.Process(target=actor_main, args=(i, args, root), daemon=True)
                  for i in range(args.actors)]
        for proc in actors:
            proc.start()
        timer = threading.Timer(args.max_seconds, signal.raise_signal, args=(signal.SIGTERM,))
        timer.daemon = True
        timer.start()
        try:
            Learner(args, root).run()
        except TimeoutError:
            logging.info("time is up")
        for proc in actors:
            proc.terminate()
            proc.join()


if __name__ == "__main__":
    main()
