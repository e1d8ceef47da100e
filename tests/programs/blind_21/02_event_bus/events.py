import logging
import threading
from collections import defaultdict

log = logging.getLogger("events")


class EventBus:
    """Topic -> callbacks. Any thread may publish, subscribe or unsubscribe."""

    def __init__(self):
        self._lock = threading.Lock()
        self._callbacks = defaultdict(list)

    def subscribe(self, topic, callback):
        with self._lock:
            self._callbacks[topic].append(callback)
        log.debug("subscribed %r to %s", callback, topic)

    def unsubscribe(self, topic, callback):
        with self._lock:
            if callback in self._callbacks[topic]:
                self._callbacks[topic].remove(callback)
        log.info("unsubscribed %s from %s", type(callback.__self__).__name__, topic)

    def publish(self, topic, **event):
        with self._lock:
            for callback in list(self._callbacks[topic]):
                try:
                    callback(**event)
                except Exception:
                    log.exception("callback for %s failed", topic)
