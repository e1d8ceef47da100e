import logging
import multiprocessing as mp
import time
from dataclasses import dataclass

from roles import monitor, pusher, worker

logger = logging.getLogger("cluster")


@dataclass
class Conf:
    workers: int = 2
    queue_limit: int = 40
    max_age: float = 8.0
    timeout: float = 30.0


class Cluster:
    """Guards the workers: replaces dead ones, ends those over time, renews old ones."""

    def __init__(self, conf):
        self.conf = conf
        self.ctx = mp.get_context("fork")
        self.task_queue = self.ctx.Queue(maxsize=conf.queue_limit)
        self.result_queue = self.ctx.Queue()
        self.pool = []
        self.number = 0
        self.last_status = time.time()

    def start(self):
        self.monitor = self._process(monitor, self.result_queue)
        for _ in range(self.conf.workers):
            self.pool.append(self._spawn_worker())
        self.pusher = self._process(pusher, self.task_queue)
        logger.info("cluster running")

    def _process(self, target, *args):
        self.number += 1
        p = self.ctx.Process(target=target, args=args, name=f"Process-1:{self.number}", daemon=True)
        p.start()
        return p

    def _spawn_worker(self):
        timer = self.ctx.Value("d", -1.0)
        p = self._process(worker, self.task_queue, self.result_queue, timer)
        p.timer = timer
        p.born = time.time()
        return p

    def reincarnate(self, p, reason):
        p.terminate()
        p.join()
        self.pool.remove(p)
        self.pool.append(self._spawn_worker())
        logger.info("reincarnated worker %s %s", p.name, reason)

    def guard(self):
        now = time.time()
        for p in list(self.pool):
            started = p.timer.value
            if not p.is_alive():
                self.reincarnate(p, "after death")
            elif started > 0 and now - started > self.conf.timeout:
                self.reincarnate(p, "after timeout")
            elif started < 0 and now - p.born > self.conf.max_age:
                self.reincarnate(p, "after max_age")
        if now - self.last_status > 5:
            self.last_status = now
            logger.info("%d workers, %d tasks queued", len(self.pool), self.task_queue.qsize())

    def stop(self):
        for p in [self.pusher, *self.pool, self.monitor]:
            p.terminate()
            p.join()
