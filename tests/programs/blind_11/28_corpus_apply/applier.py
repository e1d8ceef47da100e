import logging
import multiprocessing as mp
import time

log = logging.getLogger("corpus.apply")


def _run_slice(function, index, items, inbox, outbox, done):
    results = []
    for n, item in enumerate(items, 1):
        results.append(function(item))
        if n % 25 == 0 or n == len(items):
            done[index] = n
    outbox.put((index, results))
    inbox.get()


class ParallelApply:
    def __init__(self, workers, progress_every=10):
        self.workers = workers
        self.progress_every = progress_every

    def slices(self, items):
        n = len(items)
        return [items[n * i // self.workers:n * (i + 1) // self.workers] for i in range(self.workers)]

    def apply(self, function, items):
        ctx = mp.get_context("fork")
        inbox, outbox = ctx.SimpleQueue(), ctx.Queue()
        done = ctx.Array("i", self.workers)
        parts = self.slices(items)
        procs = [ctx.Process(target=_run_slice, args=(function, i, part, inbox, outbox, done), daemon=True)
                 for i, part in enumerate(parts)]
        for p in procs:
            p.start()
        results, last = {}, 0.0
        while len(results) < self.workers:
            if time.time() - last > self.progress_every:
                last = time.time()
                log.info("  ".join(f"[{i}] {100 * done[i] // len(parts[i]):3d}%" for i in range(self.workers)))
            try:
                index, part = outbox.get(timeout=1.0)
                results[index] = part
            except mp.queues.Empty:
                pass
        for _ in procs:
            inbox.put(None)
        for p in procs:
            p.join()
        return [r for i in range(self.workers) for r in results[i]]
