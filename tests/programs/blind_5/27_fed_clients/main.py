import argparse
import logging
import multiprocessing as mp

import numpy as np

from client import Client, client_main

log = logging.getLogger("server")


def average(states):
    return {k: np.mean([s[k] for s in states], axis=0) for k in states[0]}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--clients", type=int, default=2)
    p.add_argument("--rounds", type=int, default=260)
    p.add_argument("--length", type=int, default=200)
    p.add_argument("--pause", type=float, default=0.4)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    weights = Client(0, args.length).state()
    pipes = []
    for cid in range(args.clients):
        here, there = mp.Pipe()
        mp.Process(target=client_main, args=(cid, there, args.length, args.pause), daemon=True).start()
        pipes.append(here)
    for rnd in range(args.rounds):
        for c in pipes:
            c.send(weights)
        replies = [c.recv() for c in pipes]
        weights = average([r[0] for r in replies])
        if rnd % 5 == 0:
            log.info("round %d mean val loss %.4f", rnd, np.mean([r[1] for r in replies]))
    for c in pipes:
        c.send(None)


if __name__ == "__main__":
    main()
