"""A node with two engines, one of which serves, and a front end."""
import argparse
import logging
import multiprocessing as mp
import shutil
import sys
import tempfile
import time

from engine import run_engine
from frontend import run_frontend


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--engines", type=int, default=2)
    p.add_argument("--duration", type=float, default=100)
    p.add_argument("--stagger", type=float, default=1.5)
    p.add_argument("--rate", type=float, default=25)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(name)s: %(message)s")
    folder = tempfile.mkdtemp(prefix="failover_")
    engines = [mp.Process(target=run_engine, args=(f"engine-{i}", folder), name=f"engine-{i}")
               for i in range(args.engines)]
    for engine in engines:
        engine.start()
        time.sleep(args.stagger)
    frontend = mp.Process(target=run_frontend, args=(folder, args.duration, args.rate), name="frontend")
    frontend.start()
    frontend.join()
    for engine in engines:
        engine.terminate()
    for engine in engines:
        engine.join()
    shutil.rmtree(folder, ignore_errors=True)
    sys.exit(max(abs(p.exitcode) for p in engines + [frontend]))


if __name__ == "__main__":
    main()
