"""Runtime manager: a pool of processes that ask the scheduler for work."""
import json
import logging
import multiprocessing as mp
import os
import time
import urllib.request

from boefjes import RUNNERS

log = logging.getLogger("runtime")


class SchedulerClient:
    def __init__(self, port):
        self.base = f"http://127.0.0.1:{port}"

    def pop_task(self):
        with urllib.request.urlopen(f"{self.base}/queues/pop", timeout=10) as response:
            return json.load(response)

    def patch_task(self, task_id, results):
        body = json.dumps({"id": task_id, "results": results}).encode()
        request = urllib.request.Request(f"{self.base}/tasks", data=body, method="POST")
        urllib.request.urlopen(request, timeout=10).close()


def start_working(name, port, poll_interval):
    client = SchedulerClient(port)
    log.info("%s started (pid %d)", name, os.getpid())
    handled = 0
    while True:
        task = client.pop_task()
        if task is None:
            time.sleep(poll_interval)
            continue
        try:
            results = RUNNERS[task["boefje"]](task)
            client.patch_task(task["id"], len(results))
            handled += 1
            if handled % 20 == 0:
                log.info("%s: %d tasks handled", name, handled)
        except Exception:
            log.exception("%s: task %s failed", name, task["id"])


class SchedulerRuntimeManager:
    def __init__(self, port, pool_size, poll_interval):
        self.port = port
        self.pool_size = pool_size
        self.poll_interval = poll_interval

    def run(self):
        with mp.Pool(processes=self.pool_size) as pool:
            try:
                pool.starmap(start_working, [(f"worker-{i}", self.port, self.poll_interval)
                                             for i in range(self.pool_size)], chunksize=1)
            except Exception:
                log.exception("an error occurred")
                raise
