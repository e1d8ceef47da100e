"""Score a stream of batches on an actor process, with a monitor that polls the actor."""
import argparse
import logging
import multiprocessing as mp
import threading
import time

import numpy as np

import walltime
from actor import Call, actor_main
from client import ActorHandle, BatchStore

log = logging.getLogger("driver")


def monitor_main(inbox, period: float, limit: float) -> None:
    """Asks the actor for its counters; its own concurrency group, so that it does not wait behind scoring."""
    walltime.arm(limit)
    seq = 0
    while True:
        inbox.put(Call("io", seq, "report"))
        seq += 1
        time.sleep(period)


class ResultReader(threading.Thread):
    def __init__(self, outbox, handle: ActorHandle):
        super().__init__(daemon=True, name="results")
        self._outbox = outbox
        self._handle = handle
        self.scores: dict[int, float] = {}
        self.last_report: dict = {}

    def run(self) -> None:
        while True:
            group, seq, value = self._outbox.get()
            if group == "io":
                self.last_report = value
                if value["pings"] % 20 == 0:
                    log.info("actor reports %s, %d calls in flight", value, self._handle.in_flight)
            else:
                self.scores[seq] = value
                self._handle.finished()


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--batches", type=int, default=900)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--dim", type=int, default=128)
    p.add_argument("--window", type=int, default=16)
    p.add_argument("--pace", type=float, default=0.1, help="seconds between two batches of the source")
    p.add_argument("--reorder-wait", type=float, default=3.0)
    p.add_argument("--poll", type=float, default=0.25)
    p.add_argument("--evicted", type=int, nargs="*", default=[40])
    p.add_argument("--limit", type=float, default=125.0)
    p.add_argument("--seed", type=int, default=3)
    return p.parse_args()


def main() -> None:
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    walltime.arm(args.limit)
    ctx = mp.get_context("fork")
    inbox, outbox = ctx.Queue(), ctx.Queue()
    actor = ctx.Process(
        target=actor_main,
        args=(inbox, outbox, args.dim, args.seed, args.reorder_wait, args.limit),
        name="scoring-actor",
    )
    monitor = ctx.Process(target=monitor_main, args=(inbox, args.poll, args.limit), name="monitor", daemon=True)
    actor.start()
    monitor.start()

    rng = np.random.default_rng(args.seed)
    store = BatchStore(rng, args.dim, args.batch_size, set(args.evicted))
    handle = ActorHandle(inbox, store, args.window)
    reader = ResultReader(outbox, handle)
    reader.start()

    started = time.perf_counter()
    for key in range(args.batches):
        handle.submit_score(key)
        if key % 20 == 0:
            log.info("submitted batch %d, %d scored", key, len(reader.scores))
        time.sleep(args.pace)
    while handle.in_flight:
        time.sleep(0.1)
    log.info("%d scores in %.1f s", len(reader.scores), time.perf_counter() - started)
    inbox.put(None)
    actor.join()
    monitor.terminate()


if __name__ == "__main__":
    main()
