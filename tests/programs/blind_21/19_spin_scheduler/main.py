"""Serve a small decoder: front end, scheduler and detokenizer processes, and a replay of a day's traffic."""
import argparse
import logging
import multiprocessing as mp
import random
import statistics
import threading
import time

from engine import lifetime, run_detokenizer, run_scheduler

log = logging.getLogger("serve")


class Frontend:
    def __init__(self, ctx, limit):
        sched_in, self.to_scheduler = ctx.Pipe(duplex=False)
        detok_in, detok_out = ctx.Pipe(duplex=False)
        self.replies, reply_out = ctx.Pipe(duplex=False)
        self.procs = [
            ctx.Process(target=run_scheduler, args=(sched_in, detok_out, limit), name="scheduler", daemon=True),
            ctx.Process(target=run_detokenizer, args=(detok_in, reply_out, limit), name="detokenizer", daemon=True),
        ]
        for p in self.procs:
            p.start()
        self.lock = threading.Lock()
        self.pending = {}
        self.next_id = 0
        threading.Thread(target=self._collect, name="collector", daemon=True).start()

    def _collect(self):
        while True:
            try:
                reply = self.replies.recv()
            except EOFError:
                return
            event, slot = self.pending.pop(reply["id"])
            slot.append(reply["text"])
            event.set()

    def generate(self, prompt, max_tokens):
        event, slot = threading.Event(), []
        with self.lock:
            self.next_id += 1
            self.pending[self.next_id] = (event, slot)
            self.to_scheduler.send({"id": self.next_id, "prompt": prompt, "max_tokens": max_tokens})
        event.wait()
        return slot[0]


class TrafficReplay:
    """Batch jobs upstream call the model in bursts, with quiet minutes between them (scaled down)."""

    def __init__(self, frontend, period, burst, seed=4):
        self.frontend, self.period, self.burst = frontend, period, burst
        self.rng = random.Random(seed)
        self.latencies = []

    def one_request(self):
        prompt = [self.rng.randrange(2000) for _ in range(self.rng.randrange(10, 60))]
        started = time.perf_counter()
        text = self.frontend.generate(prompt, self.rng.randrange(16, 64))
        self.latencies.append((time.perf_counter() - started) * 1000)
        return len(text)

    def run_burst(self, number):
        before = len(self.latencies)
        threads = [threading.Thread(target=self.one_request) for _ in range(self.burst)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        recent = self.latencies[before:]
        log.info("burst %d: %d requests answered, p50 %.0f ms, max %.0f ms, open %d", number, len(recent),
                 statistics.median(recent), max(recent), len(self.frontend.pending))

    def run(self, seconds):
        started, number = time.time(), 0
        while time.time() - started < seconds:
            self.run_burst(number)
            number += 1
            time.sleep(max(0.0, started + number * self.period - time.time()))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--period", type=float, default=9.0)
    p.add_argument("--burst", type=int, default=24)
    p.add_argument("--seconds", type=int, default=108)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    lifetime(args.seconds + 12)
    frontend = Frontend(mp.get_context("spawn"), args.seconds + 12)
    TrafficReplay(frontend, args.period, args.burst).run(args.seconds)


if __name__ == "__main__":
    main()
