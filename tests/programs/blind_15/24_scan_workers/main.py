"""Scan runtime: a scheduler, a pool of workers, all in one container with a memory limit."""
import argparse
import logging
import multiprocessing as mp

from container import enforce_memory_limit
from runtime import SchedulerRuntimeManager
from scheduler import run_scheduler


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--pool-size", type=int, default=2)
    p.add_argument("--poll-interval", type=float, default=0.5)
    p.add_argument("--tasks-per-second", type=float, default=6.0)
    p.add_argument("--memory-limit", type=float, default=512, help="MiB")
    p.add_argument("--seed", type=int, default=3)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(name)s: %(message)s")
    here, there = mp.Pipe()
    mp.Process(target=run_scheduler, args=(there, args.tasks_per_second, args.seed), name="scheduler",
               daemon=True).start()
    port = here.recv()
    mp.Process(target=enforce_memory_limit, args=(args.memory_limit,), name="kernel", daemon=True).start()
    SchedulerRuntimeManager(port, args.pool_size, args.poll_interval).run()


if __name__ == "__main__":
    main()
