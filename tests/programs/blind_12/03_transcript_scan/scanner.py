"""Runs scanners over transcripts in several processes."""
import logging
import multiprocessing as mp
import threading
import time

log = logging.getLogger("scan")

PARSE_JOB_PREFETCH_SIZE = 6


def iterator_from_queue(q):
    """Jobs until the producer says that there are no more."""
    while True:
        job = q.get()
        if job is None:
            return
        yield job


def worker_process(idx, parse_jobs, results, parse_fn, scanners):
    for job in iterator_from_queue(parse_jobs):
        transcript = parse_fn(job)
        found = {name: fn(transcript) for name, fn in scanners.items()}
        results.put((idx, job, found))
    results.put((idx, None, None))


class MultiProcessScan:
    def __init__(self, parse_fn, scanners, max_processes, max_transcripts):
        self.parse_fn = parse_fn
        self.scanners = scanners
        self.max_processes = max_processes
        self.task_count = max_transcripts
        self.ctx = mp.get_context("fork")

    def _produce(self, jobs, parse_jobs):
        for job in jobs:
            parse_jobs.put(job)
        for _ in range(self.task_count):
            parse_jobs.put(None)

    def run(self, jobs, on_result):
        parse_jobs = self.ctx.Queue(maxsize=PARSE_JOB_PREFETCH_SIZE + self.max_processes)
        results = self.ctx.Queue()
        workers = [
            self.ctx.Process(
                target=worker_process, args=(i, parse_jobs, results, self.parse_fn, self.scanners), name=f"scan-{i}"
            )
            for i in range(self.max_processes)
        ]
        for w in workers:
            w.start()
        producer = threading.Thread(target=self._produce, args=(jobs, parse_jobs), name="parse-producer")
        producer.start()

        active = len(workers)
        start = time.time()
        n = 0
        while active:
            idx, job, found = results.get()
            if job is None:
                active -= 1
                log.info("process %d has no more transcripts", idx)
                continue
            n += 1
            on_result(job, found)
        log.info("%d transcripts scanned in %.1fs", n, time.time() - start)
        producer.join()
        for w in workers:
            w.join()
        return n
