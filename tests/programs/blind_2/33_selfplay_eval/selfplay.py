import argparse
import logging
import queue
import random
import time

import arena

log = logging.getLogger("selfplay")


def learn(weights, games, rng):
    for _ in range(games):
        i = rng.randrange(len(weights))
        weights[i] += 0.01 * rng.gauss(0.2, 1)
    return weights


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rounds", type=int, default=4)
    p.add_argument("--games", type=int, default=300)
    p.add_argument("--round-seconds", type=float, default=16)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    inbox, outbox, cond, latest, procs = arena.start("/tmp/selfplay_snapshots.txt")
    rng = random.Random(1)
    weights = [0.0] * 64
    for version in range(1, args.rounds + 1):
        end = time.monotonic() + args.round_seconds
        while time.monotonic() < end:
            weights = learn(weights, args.games, rng)
            time.sleep(0.05)
        inbox.put((version, list(weights)))
        with cond:
            latest.value = version
            cond.notify_all()
        try:
            log.info("version %d: %d wins of 4000", *outbox.get(timeout=30))
        except queue.Empty:
            log.info("evaluation of version %d takes longer", version)
    inbox.put(None)
    with cond:
        latest.value = -1
        cond.notify_all()
    for proc in procs:
        proc.join()


if __name__ == "__main__":
    main()
