"""Data-parallel fit; after every round rank 0 alone scores the model on the hold-out corpus."""
import argparse
import multiprocessing as mp
import os
import socket

from fit import Options, fit


def pick_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def entry(rank, world, port, options):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    fit(rank, world, options)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=75)
    parser.add_argument("--holdout-docs", type=int, default=44)
    args = parser.parse_args()
    options = Options(args.rounds, args.steps, args.holdout_docs)
    port = pick_port()
    ctx = mp.get_context("fork")
    ranks = [ctx.Process(target=entry, args=(r, args.devices, port, options), name=f"rank-{r}")
             for r in range(args.devices)]
    for p in ranks:
        p.start()
    for p in ranks:
        p.join()
    raise SystemExit(max(abs(p.exitcode) for p in ranks))


if __name__ == "__main__":
    main()
