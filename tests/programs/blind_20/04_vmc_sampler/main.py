"""Variational Monte Carlo on several ranks, with block averages and a limit on the run time."""
import argparse
import json
import logging
import os
import socket
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import walltime
from run_time import LoopTimer, RunTimeControl
from sampler import WalkerEnsemble

log = logging.getLogger("vmc")


class VMCDriver:
    def __init__(self, args, rank: int, world: int):
        self.args, self.rank, self.world = args, rank, world
        self.ensemble = WalkerEnsemble(args.walkers, args.particles, args.alpha, args.seed + rank)
        self.timer = LoopTimer()
        self.control: RunTimeControl | None = None
        self.history: list[tuple[int, float, float]] = []

    def read_restart(self, folder: Path) -> None:
        """The ranks read one after the other, the file system does not like them all at once."""
        time.sleep(self.rank * self.args.stagger)
        path = folder / f"walkers.{self.rank}.pt"
        if path.exists():
            self.ensemble.r = torch.load(path)

    def warm_up(self) -> None:
        for _ in range(self.args.warmup_sweeps):
            self.ensemble.sweep(self.args.step_size)

    def run_block(self, block: int) -> None:
        acc = 0.0
        energies = []
        for _ in range(self.args.sweeps):
            acc += self.ensemble.sweep(self.args.step_size)
            energies.append(self.ensemble.local_energy())
        e = torch.cat(energies)
        stats = torch.tensor([e.sum(), (e ** 2).sum(), float(e.numel()), acc / self.args.sweeps], dtype=torch.float64)
        dist.all_reduce(stats)
        mean = (stats[0] / stats[2]).item()
        var = (stats[1] / stats[2]).item() - mean ** 2
        self.history.append((block, mean, var))
        self.args.step_size *= 1.02 if stats[3].item() / self.world > 0.5 else 0.98
        if self.rank == 0 and block % 5 == 0:
            log.info("block %3d  E = %.5f  var = %.4f  acc = %.2f", block, mean, var, stats[3].item() / self.world)

    def run(self) -> int:
        self.control = RunTimeControl(self.timer, self.args.max_seconds, run_start=time.monotonic())
        block = 0
        while block < self.args.blocks:
            self.timer.start()
            self.run_block(block)
            self.timer.stop()
            block += 1
            if not self.control.enough_time_for_next_block():
                self.control.announce(block)
                break
        return block

    def finalize(self, out: Path) -> None:
        torch.save(self.ensemble.r, out / f"walkers.{self.rank}.pt")
        dist.barrier()
        if self.rank == 0:
            (out / "scalars.json").write_text(json.dumps(self.history))
            log.info("results are in %s", out)


def run(rank: int, args, out: str) -> None:
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {rank}] %(message)s")
    walltime.arm(args.limit)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    driver = VMCDriver(args, rank, args.ranks)
    driver.read_restart(Path(out))
    driver.warm_up()
    blocks = driver.run()
    driver.finalize(Path(out))
    log.info("%d blocks", blocks)
    dist.destroy_process_group()


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--ranks", type=int, default=3)
    p.add_argument("--walkers", type=int, default=250)
    p.add_argument("--particles", type=int, default=12)
    p.add_argument("--alpha", type=float, default=0.42)
    p.add_argument("--step-size", type=float, default=0.08)
    p.add_argument("--warmup-sweeps", type=int, default=15)
    p.add_argument("--sweeps", type=int, default=8)
    p.add_argument("--stagger", type=float, default=1.2, help="seconds between the reads of two ranks")
    p.add_argument("--blocks", type=int, default=2000)
    p.add_argument("--max-seconds", type=float, default=8.0)
    p.add_argument("--limit", type=float, default=115.0)
    p.add_argument("--seed", type=int, default=5)
    return p.parse_args()


def main() -> None:
    args = parse_args()
    walltime.arm(args.limit)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    with tempfile.TemporaryDirectory(prefix="vmc_") as tmp:
        mp.start_processes(run, args=(args, tmp), nprocs=args.ranks, start_method="fork")


if __name__ == "__main__":
    main()
