import argparse
import logging
import time

from solver_pool import SolverPool

log = logging.getLogger("solve")


def match(stars):
    """Triangle matching against the catalogue, the slow part."""
    time.sleep(0.12)
    return len(stars) > 10


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--frames", type=int, default=36)
    p.add_argument("--solvers", type=int, default=3)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    pool = SolverPool(args.solvers)
    for i in range(args.frames):
        pool.tasks.put((i, 1000 + i))
    pool.start()
    solved = 0
    for frame_id, stars, _ in pool.collect(args.frames):
        solved += match(stars)
        if solved % 6 == 0:
            log.info("frame %d: %d stars, %d solved so far", frame_id, len(stars), solved)
    pool.join()
    log.info("%d of %d frames solved", solved, args.frames)


if __name__ == "__main__":
    main()
