import argparse
import logging
import os
import socket
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from callbacks import EveryXSimulationSteps, EveryXWallTimeSeconds
from domain import Slab


def parse_args():
    p = argparse.ArgumentParser(description="advection-diffusion test for the dycore")
    p.add_argument("--ranks", type=int, default=3)
    p.add_argument("--dt", type=float, default=0.1)
    p.add_argument("--viscosity", type=float, default=0.05)
    p.add_argument("--substeps", type=int, default=4)
    p.add_argument("--status-seconds", type=float, default=4.0,
                   help="print the L2 norm about this often")
    p.add_argument("--time-limit", type=float, default=140.0, help="batch job limit in seconds")
    return p.parse_args()


def job_limit(seconds):
    def expire():
        logging.getLogger("dycore").warning("batch time limit reached")
        os._exit(0)

    t = threading.Timer(seconds, expire)
    t.daemon = True
    t.start()


class Integrator:
    def __init__(self, slab, dt, nu, substeps):
        self.slab = slab
        self.dt = dt
        self.nu = nu
        self.substeps = substeps
        self.callbacks = []
        self.time = 0.0

    def step(self):
        for _ in range(self.substeps):
            self.slab.exchange_halo()
            k1 = self.slab.tendency(self.nu)
            self.slab.q[1:-1] += self.dt * k1
            self.time += self.dt
        time.sleep(0.05)

    def solve(self, nsteps):
        for n in range(1, nsteps + 1):
            self.step()
            for cb in self.callbacks:
                cb(n)


class Diagnostics:
    def __init__(self, slab, integ, log):
        self.slab, self.integ, self.log = slab, integ, log
        self.initial_mass = None

    def start(self):
        self.initial_mass = self.slab.mass().clone()
        dist.all_reduce(self.initial_mass)

    def print_energy(self, step):
        total = torch.stack([self.slab.l2(), self.slab.mass()])
        dist.all_reduce(total)
        if self.slab.rank == 0:
            self.log.info("step %d simtime %.1f  L2 %.6f  mass drift %.3e", step, self.integ.time,
                          total[0].sqrt().item(), (total[1] - self.initial_mass).item())

    def heartbeat(self, step):
        self.log.info("step %d", step)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run(rank, args, port, started):
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, force=True,
                        format=f"%(asctime)s rank{rank} %(message)s")
    log = logging.getLogger("dycore")
    job_limit(args.time_limit - (time.time() - started))
    torch.set_num_threads(1)
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks,
                            timeout=timedelta(minutes=30))

    slab = Slab(rank, args.ranks)
    log.info("slab of %d rows ready", slab.rows)
    integ = Integrator(slab, args.dt, args.viscosity, args.substeps)
    diag = Diagnostics(slab, integ, log)
    integ.callbacks.append(EveryXWallTimeSeconds(args.status_seconds, diag.print_energy))
    integ.callbacks.append(EveryXSimulationSteps(20, diag.heartbeat))
    diag.start()
    integ.solve(100000)
    dist.destroy_process_group()


def main():
    args = parse_args()
    torch.set_num_threads(1)
    mp.start_processes(run, args=(args, free_port(), time.time()), nprocs=args.ranks,
                       start_method="fork")


if __name__ == "__main__":
    main()
