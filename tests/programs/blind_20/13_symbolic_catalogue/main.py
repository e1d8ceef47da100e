"""Rank the functions of a catalogue by description length on several ranks."""
import argparse
import logging
import os
import shutil
import signal
import socket
import tempfile
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import generation
from likelihood import ShapeLikelihood

log = logging.getLogger("catalogue")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--ranks", type=int, default=3)
    p.add_argument("--complexity", type=int, default=4)
    p.add_argument("--run-name", default="core_maths")
    p.add_argument("--points", type=int, default=64)
    p.add_argument("--fit-steps", type=int, default=40)
    p.add_argument("--seed", type=int, default=57)
    p.add_argument("--walltime", type=int, default=130)
    return p.parse_args()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def write_data(path, points, seed):
    rng = np.random.default_rng(seed)
    x = np.linspace(0.3, 2.8, points)
    y = 1.4 * np.sqrt(x) + 0.6 / x
    err = np.full(points, 0.05)
    np.savetxt(path, np.array([x, y + rng.normal(0, err), err]).T)


def catalogue_file(fn_dir, complexity):
    return os.path.join(fn_dir, f"unique_equations_{complexity}.txt")


def fit_catalogue(args, rank, fn_dir, data_file):
    data = torch.tensor(np.loadtxt(data_file), dtype=torch.float32)
    like = ShapeLikelihood(data[:, 0], data[:, 1], data[:, 2])
    with open(catalogue_file(fn_dir, args.complexity)) as f:
        equations = f.read().splitlines()
    scores = []
    for equation in generation.split(equations, rank, args.ranks):
        scores.append((like.fit(equation, args.fit_steps), equation))
    everything = [None] * args.ranks
    dist.all_gather_object(everything, scores)
    return sorted(s for part in everything for s in part)


def run(rank, args, port, work_dir):
    logging.basicConfig(level=logging.INFO,
                        format=f"%(asctime)s [rank {rank}] %(name)s %(message)s")
    signal.alarm(args.walltime)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}",
                            rank=rank, world_size=args.ranks)
    data_file = os.path.join(work_dir, "data.txt")
    fn_dir = os.path.join(work_dir, args.run_name)

    # (1) mock data
    if rank == 0:
        os.makedirs(fn_dir, exist_ok=True)
        write_data(data_file, args.points, args.seed)
        log.info("wrote %d data points to %s", args.points, data_file)
    dist.barrier()

    # (2) generate the catalogue if it is not already on disk
    if rank == 0:
        if not os.path.isfile(catalogue_file(fn_dir, args.complexity)):
            log.info("no catalogue of complexity %d, generating", args.complexity)
            for c in range(1, args.complexity + 1):
                generation.find_unique(c, fn_dir)
    dist.barrier()

    # (3) fit every function and rank them
    t0 = time.monotonic()
    ranked = fit_catalogue(args, rank, fn_dir, data_file)
    if rank == 0:
        for value, equation in ranked[:10]:
            log.info("%10.3f  %s", value, equation)
        log.info("fitted %d functions in %.1fs", len(ranked), time.monotonic() - t0)
    dist.destroy_process_group()


def main():
    args = parse_args()
    signal.alarm(args.walltime + 5)
    work_dir = tempfile.mkdtemp(prefix="esr_")
    try:
        mp.spawn(run, args=(args, free_port(), work_dir), nprocs=args.ranks)
    finally:
        shutil.rmtree(work_dir, ignore_errors=True)


if __name__ == "__main__":
    main()
