"""Runs the calls of the engine on all workers; a call may be left in flight."""
import collections
import logging
import time

import torch.multiprocessing as mp

from message_queue import MessageQueue
from worker import worker_main

log = logging.getLogger("executor")


class FutureWrapper:
    def __init__(self, executor, get_response):
        self.executor = executor
        self.get_response = get_response
        self.done = False
        self.value = None
        self.error = None

    def result(self):
        # the answers come in the order of the calls
        while not self.done:
            self.executor.complete_next()
        if self.error is not None:
            raise self.error
        return self.value

    def complete(self):
        try:
            self.value = self.get_response()
        except TimeoutError as err:
            self.error = err
        self.done = True


class MultiprocExecutor:
    def __init__(self, num_workers, width, hidden):
        ctx = mp.get_context("fork")
        self.queues = []
        self.workers = []
        for rank in range(num_workers):
            ours, theirs = MessageQueue.pair()
            process = ctx.Process(target=worker_main, args=(rank, theirs, width, hidden), name=f"worker-{rank}", daemon=True)
            process.start()
            theirs.close()
            self.queues.append(MessageQueue(ours))
            self.workers.append(process)
        self.futures = collections.deque()
        self.next_call = 0
        log.info("workers %s", self.collective_rpc("ping", timeout=60).result())

    def collective_rpc(self, method, args=(), timeout=None):
        call_id = self.next_call
        self.next_call += 1
        deadline = None if timeout is None else time.monotonic() + timeout
        for queue in self.queues:
            queue.enqueue((call_id, method, args, deadline))

        def get_response():
            responses = []
            for rank, queue in enumerate(self.queues):
                while True:
                    remaining = None if deadline is None else deadline - time.monotonic()
                    try:
                        answered, value = queue.dequeue(remaining)
                    except TimeoutError:
                        raise TimeoutError(f"call {call_id} ({method}): worker {rank} gave no answer in time") from None
                    if answered == call_id:
                        responses.append(value)
                        break
                    log.warning("late answer of worker %d to call %d", rank, answered)
            return responses

        future = FutureWrapper(self, get_response)
        self.futures.append(future)
        return future

    def complete_next(self):
        self.futures.popleft().complete()

    def shutdown(self):
        for process in self.workers:
            process.terminate()
