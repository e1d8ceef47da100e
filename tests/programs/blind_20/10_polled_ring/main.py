"""Quote pipeline: a feed process writes to a ring, a reactor polls it, a journal writes the signals to disk."""
import argparse
import logging
import multiprocessing as mp
import random
import tempfile
import time
from pathlib import Path

import walltime
from reactor import reactor_main
from ring import Ring

log = logging.getLogger("pipeline")


def feed_main(name: str, slots: int, rate: float, symbols: int, seed: int, limit: float) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    walltime.arm(limit)
    ring = Ring(slots, name)
    rng = random.Random(seed)
    prices = [100.0 + rng.uniform(-20, 20) for _ in range(symbols)]
    number, full = 0, 0
    due = time.monotonic()
    while True:
        symbol = rng.randrange(symbols)
        prices[symbol] *= 1.0 + rng.gauss(0.0, 2e-4)
        spread = 0.01 * rng.randint(1, 4)
        record = (number, time.monotonic(), symbol, 1, prices[symbol] - spread, prices[symbol] + spread)
        while not ring.push(record):
            full += 1
            time.sleep(0.001)
        number += 1
        due += rng.expovariate(rate)
        pause = due - time.monotonic()
        if pause > 0:
            time.sleep(pause)


def journal_main(signals, path: str, limit: float) -> None:
    walltime.arm(limit)
    with open(path, "w") as out:
        while True:
            number, symbol, side = signals.get()
            out.write(f"{number},{symbol},{side}\n")
            out.flush()


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--slots", type=int, default=4096)
    p.add_argument("--rate", type=float, default=150.0, help="quotes a second")
    p.add_argument("--symbols", type=int, default=40)
    p.add_argument("--report-every", type=float, default=5.0)
    p.add_argument("--session-seconds", type=float, default=105.0)
    p.add_argument("--limit", type=float, default=125.0)
    p.add_argument("--seed", type=int, default=8)
    return p.parse_args()


def main() -> None:
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    walltime.arm(args.limit)
    ctx = mp.get_context("fork")
    ring = Ring(args.slots)
    signals = ctx.Queue()
    with tempfile.TemporaryDirectory(prefix="quotes_") as tmp:
        path = Path(tmp) / "signals.csv"
        procs = [
            ctx.Process(target=journal_main, args=(signals, str(path), args.limit), name="journal"),
            ctx.Process(target=reactor_main, args=(ring.name, args.slots, signals, args.report_every, args.limit),
                        name="reactor"),
            ctx.Process(target=feed_main, args=(ring.name, args.slots, args.rate, args.symbols, args.seed, args.limit),
                        name="feed"),
        ]
        for proc in procs:
            proc.daemon = True
            proc.start()
            log.info("%s runs in process %d", proc.name, proc.pid)
        end = time.monotonic() + args.session_seconds
        while time.monotonic() < end:
            time.sleep(15.0)
            lines = path.read_text().count("\n") if path.exists() else 0
            log.info("%d signals in the journal", lines)
        for proc in reversed(procs):
            proc.terminate()
            proc.join()
    ring.close(unlink=True)


if __name__ == "__main__":
    main()
