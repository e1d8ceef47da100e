import argparse
import logging
import os
import tempfile
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from domain import SlabDomain
from potential import PairPotential

log = logging.getLogger("md")


class Integrator:
    """Velocity Verlet with an optional Berendsen barostat."""

    def __init__(self, domain, model, dt):
        self.domain, self.model, self.dt = domain, model, dt
        self.forces = None

    def compute(self):
        d = self.domain
        pos = d.exchange_halo()
        out = self.model(pos, d.n_owned, d.graph, d.n_graphs)
        return d.consolidate(out)

    def step(self, target_pressure=None):
        d = self.domain
        if self.forces is None:
            self.forces = self.compute()["forces"]
        d.vel += 0.5 * self.dt * self.forces
        d.pos += self.dt * d.vel
        out = self.compute()
        self.forces = out["forces"]
        d.vel += 0.5 * self.dt * self.forces
        d.vel *= 0.999
        if target_pressure is not None:
            mu = 1 + 1e-5 * (out["pressure"] - target_pressure).clamp(-50, 50)
            d.pos *= mu[d.graph][:, None]
        return out


def simulate(rank, args):
    torch.manual_seed(0)
    domain = SlabDomain(rank, args.world, args.atoms, args.halo, args.systems)
    model = PairPotential()
    sim = Integrator(domain, model, args.dt)

    model.active_outputs = {"forces"}
    t = time.time()
    for n in range(args.equilibration):
        sim.step()
        if rank == 0 and n % 50 == 0:
            log.info("equilibration step %d", n)
    if rank == 0:
        log.info("equilibrated in %.1fs, starting NPT", time.time() - t)

    model.active_outputs = {"energy", "forces", "pressure", "dipoles"}
    for n in range(args.steps):
        out = sim.step(target_pressure=args.pressure)
        if rank == 0 and n % args.log_every == 0:
            log.info("NPT step %d energy %s pressure %s", n,
                     [round(v, 2) for v in out["energy"].tolist()],
                     [round(v, 2) for v in out["pressure"].tolist()])


def worker(rank, args, rdzv):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(message)s")
    alarm = threading.Timer(args.wall_time, os._exit, (0,))
    alarm.daemon = True
    alarm.start()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rdzv}", rank=rank, world_size=args.world)
    simulate(rank, args)
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--world", type=int, default=4)
    p.add_argument("--atoms", type=int, default=96)
    p.add_argument("--halo", type=int, default=12)
    p.add_argument("--systems", type=int, default=4)
    p.add_argument("--dt", type=float, default=2e-3)
    p.add_argument("--equilibration", type=int, default=120)
    p.add_argument("--steps", type=int, default=200000)
    p.add_argument("--pressure", type=float, default=1.0)
    p.add_argument("--log-every", type=int, default=100)
    p.add_argument("--wall-time", type=float, default=130.0)
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        mp.spawn(worker, args=(args, os.path.join(tmp, "rdzv")), nprocs=args.world)


if __name__ == "__main__":
    main()
