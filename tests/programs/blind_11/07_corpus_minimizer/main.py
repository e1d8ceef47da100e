import argparse
import collections
import logging
import multiprocessing as mp

from tracer import make_input, trace

log = logging.getLogger("cmin")


class Worker(mp.Process):
    def __init__(self, index, job_queue, progress_queue):
        super().__init__(name=f"tracer-{index}")
        self.job_queue = job_queue
        self.progress_queue = progress_queue

    def run(self):
        while True:
            idx = self.job_queue.get()
            if idx is None:
                break
            edges = trace(make_input(idx))
            self.progress_queue.put((idx, sorted(edges)))
        self.progress_queue.put((None, self.name))


class Minimizer:
    def __init__(self, args):
        self.args = args
        self.job_queue = mp.Queue(maxsize=args.queue_size)
        self.progress_queue = mp.Queue(maxsize=args.queue_size)
        self.workers = [Worker(i, self.job_queue, self.progress_queue) for i in range(args.workers)]

    def dispatch(self):
        for idx in range(self.args.files):
            self.job_queue.put(idx)
            if idx % 100 == 0:
                log.info("dispatched %d of %d files", idx, self.args.files)
        for _ in self.workers:
            self.job_queue.put(None)

    def collect(self):
        best = {}
        finished = 0
        done = 0
        while finished < len(self.workers):
            idx, edges = self.progress_queue.get()
            if idx is None:
                finished += 1
                continue
            done += 1
            for edge in edges:
                best.setdefault(edge, idx)
            if done % 250 == 0:
                log.info("traced %d files, %d edges", done, len(best))
        return best

    def run(self):
        for worker in self.workers:
            worker.start()
        self.dispatch()
        best = self.collect()
        for worker in self.workers:
            worker.join()
        chosen = collections.Counter(best.values())
        log.info("%d files cover %d edges", len(chosen), len(best))


def main():
    parser = argparse.ArgumentParser(description="minimize a fuzzing corpus")
    parser.add_argument("--files", type=int, default=6000)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--queue-size", type=int, default=256)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    log.info("tracing %d files with %d workers", args.files, args.workers)
    Minimizer(args).run()


if __name__ == "__main__":
    main()
