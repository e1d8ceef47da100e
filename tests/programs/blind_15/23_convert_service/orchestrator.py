"""Local orchestrator: keeps the tasks, hands them to the worker processes, collects what they return."""
import dataclasses
import logging
import multiprocessing as mp
import threading
import time
import uuid
from typing import Any, Dict, Optional

from converter import convert_worker

log = logging.getLogger("orchestrator")


@dataclasses.dataclass
class Task:
    task_id: str
    source: str
    options: Dict[str, Any]
    status: str = "pending"
    created: float = dataclasses.field(default_factory=time.time)
    finished: Optional[float] = None
    result: Optional[Dict[str, Any]] = None
    error: Optional[str] = None

    @property
    def is_completed(self):
        return self.status in ("success", "failure")


class LocalOrchestrator:
    def __init__(self, num_workers):
        self.tasks: Dict[str, Task] = {}
        self.lock = threading.Lock()
        self.task_queue = mp.Queue(maxsize=16)
        self.result_queue = mp.Queue(maxsize=16)
        self.workers = [mp.Process(target=convert_worker, args=(i, self.task_queue, self.result_queue),
                                   name=f"convert-worker-{i}", daemon=True) for i in range(num_workers)]
        self.collector = threading.Thread(target=self._collect, name="collector", daemon=True)

    def start(self):
        for worker in self.workers:
            worker.start()
        self.collector.start()

    def enqueue(self, source, options):
        task = Task(uuid.uuid4().hex, source, options)
        with self.lock:
            self.tasks[task.task_id] = task
        self.task_queue.put((task.task_id, source, options))
        return task

    def _collect(self):
        while True:
            task_id, status, payload = self.result_queue.get()
            task = self.get(task_id)
            task.status = status
            task.finished = time.time()
            if status == "success":
                task.result = payload
            else:
                task.error = payload

    def get(self, task_id):
        with self.lock:
            return self.tasks[task_id]

    def queue_position(self, task_id):
        with self.lock:
            pending = [t.task_id for t in self.tasks.values() if not t.is_completed]
        return pending.index(task_id) + 1 if task_id in pending else None
