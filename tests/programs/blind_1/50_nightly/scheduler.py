"""Fine-tunes one model per tenant in fixed slots, each in its own short-lived process."""
import argparse
import logging
import multiprocessing as mp
import time

from jobs import finetune

log = logging.getLogger("scheduler")


class SlotClock:
    def __init__(self, period):
        self.period, self.t0, self.n = period, time.time(), 0

    def wait_next(self):
        target = self.t0 + self.n * self.period
        self.n += 1
        time.sleep(max(0.0, target - time.time()))
        return self.n


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--period", type=float, default=32, help="seconds between slots")
    ap.add_argument("--slots", type=int, default=10)
    ap.add_argument("--tenants-per-slot", type=int, default=2)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    clock = SlotClock(args.period)
    for _ in range(args.slots):
        slot = clock.wait_next()
        ps = [mp.Process(target=finetune, args=(10 * slot + k,), name=f"tenant-{10 * slot + k}")
              for k in range(args.tenants_per_slot)]
        for p in ps:
            p.start()
        for p in ps:
            p.join()
        log.info("slot %d: %s, next slot in %.0fs", slot, [p.exitcode for p in ps],
                 clock.t0 + clock.n * clock.period - time.time())


if __name__ == "__main__":
    main()
