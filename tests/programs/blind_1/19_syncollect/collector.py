"""Synchronous collector: every worker delivers one batch per iteration."""
import collections
import multiprocessing as mp
import random
import time
from queue import Empty

_TIMEOUT = 1.0
_MAX_IDLE_COUNT = 60


def _collect_loop(idx, pipe, queue_out, frame_time):
    rng = random.Random(idx)
    while True:
        msg, it = pipe.recv()
        if msg == "close":
            return
        time.sleep(frame_time(it) + 0.02 * rng.random())
        queue_out.put(([[rng.random() for _ in range(8)] for _ in range(16)], idx))


def _check_for_faulty_process(procs):
    if any(not p.is_alive() for p in procs):
        raise RuntimeError("one of the collector processes died")


class MultiSyncCollector:
    def __init__(self, num_workers, frame_time):
        self.num_workers = num_workers
        self.queue_out = mp.Queue()
        self.pipes, self.procs = [], []
        for i in range(num_workers):
            a, b = mp.Pipe()
            p = mp.Process(target=_collect_loop, args=(i, b, self.queue_out, frame_time), name=f"collector-{i}",
                           daemon=True)
            p.start()
            self.pipes.append(a)
            self.procs.append(p)

    def gather(self, it):
        for p in self.pipes:
            p.send(("continue", it))
        recv = collections.deque()
        t0 = time.time()
        while len(recv) < self.num_workers and (time.time() - t0) < _TIMEOUT * _MAX_IDLE_COUNT:
            for _ in range(self.num_workers):
                try:
                    recv.append(self.queue_out.get(timeout=_TIMEOUT))
                except Empty:
                    _check_for_faulty_process(self.procs)
        return [d for d, _ in sorted(recv, key=lambda r: r[1])]

    def shutdown(self):
        for p in self.pipes:
            p.send(("close", None))
        for p in self.procs:
            p.join()
