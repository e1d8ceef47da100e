import logging
import random
import threading
import time
from concurrent.futures import ProcessPoolExecutor

from gate import ConcurrencyGate, Governed
from scorer import init_worker, score

log = logging.getLogger("pipeline")


class SampleStream:
    """Rollouts as they come from the generator: variable length, some cut short."""

    def __init__(self, seed, vocab=512):
        self.rng, self.vocab, self.count = random.Random(seed), vocab, 0

    def __iter__(self):
        while True:
            self.count += 1
            prompt = [self.rng.randrange(1, self.vocab) for _ in range(self.rng.randint(24, 64))]
            length = self.rng.randint(0, 120)
            response = [self.rng.randrange(1, self.vocab) for _ in range(length)]
            if length < 12:
                response = [0] * 8
            yield {"id": self.count, "prompt": prompt, "response": response}


class ScoringPipeline:
    def __init__(self, args, mp_context):
        self.args = args
        self.pool = ProcessPoolExecutor(args.workers, mp_context=mp_context,
                                        initializer=init_worker, initargs=(args.seed,))
        self.gate = ConcurrencyGate(args.max_concurrent)
        self.executor = Governed(self.pool, self.gate)
        self.lock = threading.Lock()
        self.scored, self.rejected, self.total = 0, 0, 0.0

    def on_result(self, sample, result):
        with self.lock:
            self.scored += 1
            self.total += result["reward"]

    def on_error(self, sample, err):
        with self.lock:
            self.rejected += 1
        log.warning("skipped: %s", err)

    def report(self):
        last = 0
        while True:
            time.sleep(self.args.report_every)
            with self.lock:
                scored, mean = self.scored, self.total / max(1, self.scored)
            log.info("scored %d (%.1f/s) mean reward %.4f", scored,
                     (scored - last) / self.args.report_every, mean)
            last = scored

    def run(self):
        threading.Thread(target=self.report, daemon=True).start()
        for sample in SampleStream(self.args.seed):
            self.executor.submit(score, sample, self.on_result, self.on_error)
            if sample["id"] >= self.args.samples:
                break
        self.pool.shutdown(wait=True)
