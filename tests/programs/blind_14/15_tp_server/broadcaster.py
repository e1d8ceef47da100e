"""A ring of message slots from the engine to its workers, with a reminder when it takes long."""
import logging
import queue
import time

log = logging.getLogger("shm_broadcast")


class MessageQueue:
    def __init__(self, ctx, readers, slots, remind_after):
        self.queues = [ctx.Queue(maxsize=slots) for _ in range(readers)]
        self.replies = ctx.Queue()
        self.remind_after = remind_after

    def _patiently(self, call):
        while True:
            try:
                return call(self.remind_after)
            except (queue.Full, queue.Empty):
                log.info("No available shared memory broadcast block found in %d seconds. This typically happens "
                         "when some processes are hanging or doing some time-consuming work (e.g. compilation, "
                         "weight/kv cache quantization).", self.remind_after)

    def enqueue(self, message):
        for q in self.queues:
            self._patiently(lambda t, q=q: q.put(message, timeout=t))

    def dequeue(self, reader):
        return self._patiently(lambda t: self.queues[reader].get(timeout=t))

    def reply(self, reader, value):
        self.replies.put((reader, value))

    def gather(self):
        found = dict(self._patiently(lambda t: self.replies.get(timeout=t)) for _ in self.queues)
        return [found[r] for r in range(len(self.queues))]
