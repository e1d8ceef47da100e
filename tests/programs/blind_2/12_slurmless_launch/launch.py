import argparse
import os
import subprocess
import sys


def parse_hosts(spec):
    """'node1:2,node2:1' -> [('node1', 2), ('node2', 1)]"""
    out = []
    for part in spec.split(","):
        host, _, slots = part.partition(":")
        out.append((host, int(slots or 1)))
    return out


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--hosts", default="localhost:2,worker1:1")
    p.add_argument("--node", default="localhost")
    p.add_argument("--port", type=int, default=29671)
    p.add_argument("script", nargs="?", default="train_segm.py")
    args = p.parse_args()
    hosts = parse_hosts(args.hosts)
    world = sum(n for _, n in hosts)
    first = 0
    for host, slots in hosts:
        if host == args.node:
            break
        first += slots
    procs = []
    for local in range(slots):
        env = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(args.port), WORLD_SIZE=str(world),
                   RANK=str(first + local), LOCAL_RANK=str(local), OMP_NUM_THREADS="1")
        procs.append(subprocess.Popen([sys.executable, args.script], env=env))
    print(f"{args.node}: started ranks {first}..{first + slots - 1} of {world}", flush=True)
    sys.exit(max(pr.wait() for pr in procs))


if __name__ == "__main__":
    main()
