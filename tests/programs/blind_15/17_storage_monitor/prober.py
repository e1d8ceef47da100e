"""Child processes that watch one bus each and report what they see."""
import logging
import random
import time


def watch_bus(bus, names, events, start_delay, interval, seed):
    log = logging.getLogger(f"prober.{bus}")
    rng = random.Random(seed)
    time.sleep(start_delay)
    log.info("watching %s", bus)
    n = 0
    while True:
        n += 1
        name = rng.choice(names)
        events.put({"action": "change", "name": name, "size": rng.randrange(512, 8192), "seq": n})
        if n % 200 == 0:
            log.info("%d events from %s", n, bus)
        time.sleep(interval * rng.uniform(0.5, 1.5))
