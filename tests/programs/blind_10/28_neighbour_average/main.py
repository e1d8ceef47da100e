"""Decentralised training: launches the ranks of train.py with torchrun."""
import argparse
import subprocess
import sys
from pathlib import Path


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nproc", type=int, default=3)
    args, rest = parser.parse_known_args()
    script = Path(__file__).resolve().with_name("train.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1",
               f"--nproc-per-node={args.nproc}", str(script), *rest]
    return subprocess.call(command)


if __name__ == "__main__":
    sys.exit(main())
