import argparse, logging, random, time
from concurrent.futures import ThreadPoolExecutor

class RetryExecutor:
    def __init__(self, workers): self.pool = ThreadPoolExecutor(workers, thread_name_prefix="retry")
    def _attempt(self, fn, arg):
        while True:
            try: return fn(arg)
            except OSError: time.sleep(0.05)
    def map(self, fn, args): return [f.result() for f in [self.pool.submit(self._attempt, fn, x) for x in args]]

EXECUTORS = {}

def fetch(x):
    time.sleep(0.05)
    if random.random() < 0.1: raise OSError("timeout")
    return x * 2

def main():
    p = argparse.ArgumentParser(); p.add_argument("--batches", type=int, default=220)
    a = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    for b in range(a.batches):
        ex = EXECUTORS.setdefault(f"batch-{b}", RetryExecutor(3))
        total = sum(ex.map(fetch, range(6)))
        logging.info("batch %d total %d", b, total)
        time.sleep(0.3)

if __name__ == "__main__":
    main()
