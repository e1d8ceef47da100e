import argparse
import multiprocessing as mp
import sys

from stepper import run_partition


def parse_args():
    p = argparse.ArgumentParser(description="Step a small wave problem on a few partitions")
    p.add_argument("--partitions", type=int, default=3)
    p.add_argument("--cells", type=int, default=400)
    p.add_argument("--dofs", type=int, default=100)
    p.add_argument("--steps", type=int, default=500)
    p.add_argument("--dt", type=float, default=1e-3)
    p.add_argument("--pace", type=float, default=0.2, help="seconds per step, for the live plot")
    p.add_argument("--gc-every", type=int, default=80)
    p.add_argument("--log-every", type=int, default=20)
    return p.parse_args()


def main():
    args = parse_args()
    pipes = [mp.Pipe() for _ in range(args.partitions - 1)]
    procs = []
    for rank in range(args.partitions):
        left = pipes[rank - 1][1] if rank > 0 else None
        right = pipes[rank][0] if rank < args.partitions - 1 else None
        procs.append(mp.Process(target=run_partition, args=(rank, args, left, right), name=f"part-{rank}"))
        procs[-1].start()
    for p in procs:
        p.join()
    sys.exit(max(p.exitcode for p in procs))


if __name__ == "__main__":
    main()
