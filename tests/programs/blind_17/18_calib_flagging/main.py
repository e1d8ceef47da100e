"""Flag outliers in the gain solutions of an observation, one antenna and polarisation at a time."""
import argparse
import logging
import os
import tempfile
import threading
import time

from flag import flag_solutions
from lib_operations import MultiprocManager
from solutions import STATIONS, SolutionStore

log = logging.getLogger("flag")


def run_flag(store, args):
    before = store.flagged_share()
    manager = MultiprocManager(args.ncpu, flag_solutions)
    for coord in store.selections():
        manager.put((store, coord, args.window, args.max_cycles, args.max_rms))
    log.info("flagging %d solution series with %d processes", manager.queued, args.ncpu)
    manager.wait()
    for coord, share, seconds in manager.get():
        if share > 0.05:
            log.warning("%s direction %d: %.1f%% flagged", STATIONS[coord[0]], coord[1], 100 * share)
    log.info("flagged data before %.2f%%, after %.2f%%", 100 * before, 100 * store.flagged_share())


def wall_time(seconds):
    time.sleep(seconds)
    log.error("wall time of the batch job exceeded")
    os._exit(1)


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--ncpu", type=int, default=3)
    p.add_argument("--times", type=int, default=1200)
    p.add_argument("--directions", type=int, default=3)
    p.add_argument("--window", type=int, default=101)
    p.add_argument("--max-cycles", type=int, default=4)
    p.add_argument("--max-rms", type=float, default=5.0)
    p.add_argument("--seed", type=int, default=20)
    p.add_argument("--read-latency", type=float, default=0.6, help="of the archive file system")
    p.add_argument("--wall-time", type=float, default=130.0)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    threading.Thread(target=wall_time, args=(args.wall_time,), name="wall-time", daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="h5parm-") as folder:
        store = SolutionStore(folder, args.directions, args.times, args.read_latency)
        store.create(args.seed)
        run_flag(store, args)


if __name__ == "__main__":
    main()
