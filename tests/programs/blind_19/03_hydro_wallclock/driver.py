import logging
import os
import time

import torch
import torch.distributed as dist

log = logging.getLogger("driver")


class Driver:
    def __init__(self, block, params):
        self.block = block
        self.tlim = params.tlim
        self.nlim = params.nlim
        self.wall_time = params.wall_time
        self.cfl = params.cfl
        self.out_dir = params.out_dir
        self.time, self.ncycle = 0.0, 0
        self.dx = 1.0 / (block.nx * block.nranks)
        self.dy = 1.0 / block.ny

    def start_clock(self):
        self.wall_start = time.monotonic()

    def elapsed(self):
        return time.monotonic() - self.wall_start

    def new_timestep(self):
        b = self.block
        dt = self.cfl * torch.minimum(self.dx / b.vx.abs().max(), self.dy / (b.vy.abs().max() + 1e-12))
        dt = dt.reshape(1).to(torch.float64)
        dist.all_reduce(dt, op=dist.ReduceOp.MIN)
        return float(dt)

    def update(self, dt):
        b = self.block
        for stage in (0.5, 1.0):
            b.exchange_ghosts(b.rho)
            fx = b.vx * b.rho
            fy = b.vy * b.rho
            div = (fx - torch.roll(fx, 1, 1)) / self.dx + (fy - torch.roll(fy, 1, 0)) / self.dy
            b.rho = b.rho - stage * dt * div
        time.sleep(0.04)  # radiation source terms run on the coprocessor

    def execute(self):
        while self.time < self.tlim and self.ncycle < self.nlim and self.elapsed() < self.wall_time:
            dt = self.new_timestep()
            self.update(dt)
            self.time += dt
            self.ncycle += 1
            if self.block.rank == 0 and self.ncycle % 20 == 0:
                log.info("cycle=%d time=%.5f dt=%.3e elapsed=%.1f", self.ncycle, self.time, dt, self.elapsed())

    def write_restart(self):
        b = self.block
        local = b.interior().contiguous()
        parts = [torch.empty_like(local) for _ in range(b.nranks)] if b.rank == 0 else None
        dist.gather(local, parts, dst=0)
        if b.rank == 0:
            path = os.path.join(self.out_dir, "turb.%05d.rst" % self.ncycle)
            torch.save({"rho": torch.cat(parts, 1), "time": self.time, "ncycle": self.ncycle}, path)
            log.info("restart file %s written", path)
        dist.barrier()
