import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--trainers", type=int, default=2)
    args = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="kv-") as tmp:
        address = os.path.join(tmp, "store.sock")
        procs = [subprocess.Popen([sys.executable, str(HERE / "kvserver.py"), "--address", address,
                                   "--clients", str(args.trainers)])]
        procs += [subprocess.Popen([sys.executable, str(HERE / "trainer.py"), "--address", address, "--rank", str(r)])
                  for r in range(args.trainers)]
        sys.exit(max(p.wait() for p in procs))


if __name__ == "__main__":
    main()
