import argparse
import logging
import multiprocessing as mp

from calibrate import Calibrator, FieldModel

log = logging.getLogger("calibration")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells", type=int, default=1_500_000)
    parser.add_argument("--sensors", type=int, default=4_000)
    parser.add_argument("--population", type=int, default=24)
    parser.add_argument("--burn-in", type=int, default=1000)
    parser.add_argument("--generations", type=int, default=400)
    parser.add_argument("--workers", type=int, default=3)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")

    log.info("building field with %d cells", args.cells)
    model = FieldModel(args.cells, args.sensors)
    Calibrator(model, None, args.population).run(args.burn_in, "serial")
    with mp.Pool(args.workers) as pool:
        Calibrator(model, pool, args.population).run(args.generations, "parallel")


if __name__ == "__main__":
    main()
