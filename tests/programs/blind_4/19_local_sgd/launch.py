"""Start all ranks of a local SGD run on this machine."""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--world-size", type=int, default=2)
    args, rest = p.parse_known_args()
    script = pathlib.Path(__file__).with_name("worker.py")
    with tempfile.TemporaryDirectory(prefix="localsgd-") as tmp:
        ranks = [subprocess.Popen([sys.executable, str(script), "--rank", str(r), "--world-size", str(args.world_size),
                                   "--store", os.path.join(tmp, "store"), *rest]) for r in range(args.world_size)]
        codes = [proc.wait() for proc in ranks]
    print("exit codes:", codes, flush=True)
    sys.exit(1 if any(codes) else 0)


if __name__ == "__main__":
    main()
