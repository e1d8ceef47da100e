"""Batches from several processes, taken in turn so that the order is reproducible."""
import multiprocessing as mp
import os
import sys
import traceback

import numpy as np


def producer(queue, data_loader, transform, thread_id, seed):
    np.random.seed(seed)
    data_loader.set_thread_id(thread_id)
    try:
        for item in data_loader:
            queue.put(transform(item))
    except KeyboardInterrupt:
        queue.put("end")
        raise
    except Exception:
        print(f"Exception in worker {thread_id} (pid {os.getpid()})", file=sys.stderr)
        traceback.print_exc()
        sys.exit(1)


class MultiThreadedAugmenter:
    def __init__(self, data_loader, transform, num_processes, num_cached_per_queue=2, seeds=None):
        self.data_loader = data_loader
        self.transform = transform
        self.num_processes = num_processes
        self.num_cached_per_queue = num_cached_per_queue
        self.seeds = seeds or list(range(num_processes))
        self._queues, self._processes = [], []
        self._turn = 0
        self._end_ctr = 0

    def __iter__(self):
        return self

    def _start(self):
        ctx = mp.get_context("fork")
        self.data_loader.set_num_threads(self.num_processes)
        for i in range(self.num_processes):
            q = ctx.Queue(self.num_cached_per_queue)
            p = ctx.Process(target=producer, daemon=True, name=f"augmenter-{i}",
                            args=(q, self.data_loader, self.transform, i, self.seeds[i]))
            p.start()
            self._queues.append(q)
            self._processes.append(p)

    def _next_queue(self):
        q = self._queues[self._turn]
        self._turn = (self._turn + 1) % self.num_processes
        return q

    def __next__(self):
        if not self._queues:
            self._start()
        item = self._next_queue().get()
        if isinstance(item, str) and item == "end":
            self._end_ctr += 1
            raise StopIteration
        return item
