import argparse
import logging
import random
import time

from robot import get_controller

log = logging.getLogger("protocol")


def aspirate(volume, well):
    time.sleep(0.02)
    return {"op": "aspirate", "well": well, "measured": volume * random.uniform(0.98, 1.02)}


def dispense(volume, well):
    time.sleep(0.02)
    return {"op": "dispense", "well": well, "measured": volume * random.uniform(0.97, 1.03)}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--wells", type=int, default=96)
    p.add_argument("--volume", type=float, default=20.0)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [%(threadName)s] %(name)s: %(message)s")
    arm = get_controller()
    deviations = []
    for i in range(args.wells):
        well = f"{'ABCDEFGH'[i % 8]}{i // 8 + 1}"
        took = arm.call(aspirate, args.volume, well)
        gave = arm.call(dispense, took["measured"], well)
        deviations.append(abs(gave["measured"] - args.volume))
        if (i + 1) % 24 == 0:
            log.info("%d wells done, mean deviation %.2f ul", i + 1, sum(deviations) / len(deviations))
    log.info("protocol finished, worst deviation %.2f ul", max(deviations))


if __name__ == "__main__":
    main()
