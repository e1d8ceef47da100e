"""Workers pull tasks from the coordinator over their own pipe."""
import collections
import logging
import multiprocessing as mp
import time
from multiprocessing.connection import wait

log = logging.getLogger("execution")

SHUTDOWN = "SHUTDOWN"
WAIT = "WAIT"


def worker_loop(worker_id, conn):
    logging.getLogger().setLevel(logging.INFO)
    done = None
    while True:
        conn.send(("pull", done))
        done = None
        task = conn.recv()
        if task == SHUTDOWN:
            log.info("no tasks left, releasing this worker")
            conn.close()
            return
        if task == WAIT:
            time.sleep(0.5)
            continue
        fn, spec = task
        done = fn(spec)


class Coordinator:
    def __init__(self, workers):
        self._ctx = mp.get_context("fork")
        self._count = workers
        self._conns, self._procs = {}, []

    def start(self):
        for i in range(self._count):
            ours, theirs = self._ctx.Pipe()
            p = self._ctx.Process(target=worker_loop, args=(i, theirs), name=f"worker-{i}", daemon=True)
            p.start()
            theirs.close()
            self._conns[ours] = i
            self._procs.append(p)

    def run_stage(self, name, fn, specs, last=False):
        todo = collections.deque(specs)
        results, total = [], len(todo)
        log.info("stage %s: %d tasks", name, total)
        while len(results) < total or (last and self._conns):
            for conn in wait(list(self._conns)):
                _, done = conn.recv()
                if done is not None:
                    results.append(done)
                    if len(results) % 4 == 0 or len(results) == total:
                        log.info("stage %s: %d/%d", name, len(results), total)
                if todo:
                    conn.send((fn, todo.popleft()))
                elif last:
                    # nothing more will come: let the resources of this worker go now
                    conn.send(SHUTDOWN)
                    del self._conns[conn]
                else:
                    conn.send(WAIT)
        return results

    def join(self):
        for p in self._procs:
            p.join()
        return [p.exitcode for p in self._procs]

    def stop(self):
        for p in self._procs:
            if p.is_alive():
                p.terminate()
