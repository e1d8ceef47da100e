"""Cross-validated sweep; configurations and their folds are remote functions."""
import argparse
import logging
import time

import remote
from sweep import evaluate_config, grid

log = logging.getLogger("sweep")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-workers", type=int, default=3)
    parser.add_argument("--folds", type=int, default=4)
    parser.add_argument("--pilot", type=int, default=5, help="configurations tried one by one first")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s: %(message)s")

    remote.init(num_workers=args.num_workers)
    configs = grid(depths=(1, 2, 3, 4), rates=(0.3, 0.1, 0.03, 0.01), penalties=(0.0, 1e-3, 1e-2))

    t0 = time.time()
    for config in configs[:args.pilot]:
        score = remote.get(evaluate_config.remote(config, args.folds))
        log.info("pilot %s: %.4f", config, score)
    log.info("pilot took %.1f s, running the full grid of %d", time.time() - t0, len(configs))

    refs = [evaluate_config.remote(config, args.folds) for config in configs]
    for i, (config, ref) in enumerate(zip(configs, refs)):
        log.info("%d/%d %s: %.4f", i + 1, len(configs), config, remote.get(ref))
    remote.shutdown()


if __name__ == "__main__":
    main()
