"""Runge-Kutta time stepping of one partition, with halo exchange to its neighbours."""
import ctypes
import gc
import logging
import time

import numpy as np

from fields import FluidState, initial_state

log = logging.getLogger("wave")


def rss_mb():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) // 1024


def give_back():
    """Return the freed pages to the system, other codes run on the node."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)


class Halo:
    def __init__(self, left, right):
        self.left, self.right = left, right

    def exchange(self, state):
        ghosts = []
        for conn, edge in ((self.left, 0), (self.right, -1)):
            if conn is not None:
                conn.send([f.values[edge].copy() for f in state.fields])
        for conn in (self.left, self.right):
            if conn is not None:
                ghosts.append(conn.recv())
        return ghosts


def rhs(state, ghosts):
    out = []
    for k, f in enumerate(state.fields):
        d = np.empty_like(f.values)
        d[1:-1] = 0.5 * (f.values[2:] - f.values[:-2])
        d[0] = d[-1] = 0.0
        for g in ghosts:
            d[0] += 1e-3 * (g[k] - f.values[0])
        out.append(-d)
    return FluidState(*out)


def run_partition(rank, args, left, right):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [{rank}] %(message)s")
    gc.disable()
    halo = Halo(left, right)
    state = initial_state(args.cells, args.dofs, rank)
    for step in range(1, args.steps + 1):
        began = time.monotonic()
        k1 = rhs(state, halo.exchange(state))
        half = state.combine(k1, 0.5 * args.dt)
        k2 = rhs(half, halo.exchange(half))
        state = state.combine(k2, args.dt)
        if step % args.gc_every == 0:
            before = rss_mb()
            found = gc.collect()
            give_back()
            log.info("step %d: collected %d objects, %d MB -> %d MB", step, found, before, rss_mb())
        elif step % args.log_every == 0:
            log.info("step %d: norm %.5f, memory (rss) %d MB", step, state.norm(), rss_mb())
        time.sleep(max(0.0, args.pace - (time.monotonic() - began)))
    log.info("done: norm %.5f", state.norm())
