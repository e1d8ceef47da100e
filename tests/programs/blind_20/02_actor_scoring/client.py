"""Client side of the actor: sequence numbers, arguments that have to be resolved, a window of calls in flight."""
import itertools
import logging
import threading

from actor import Call

log = logging.getLogger("client")


class BatchNotAvailable(Exception):
    pass


class BatchStore:
    """Batches by key; keys that the loader evicted can no longer be resolved."""

    def __init__(self, rng, dim: int, batch_size: int, evicted: set[int]):
        self._rng = rng
        self._shape = (batch_size, dim)
        self._evicted = evicted

    def resolve(self, key: int):
        if key in self._evicted:
            raise BatchNotAvailable(key)
        return self._rng.normal(size=self._shape).astype("float32")


class ActorHandle:
    def __init__(self, inbox, store: BatchStore, window: int):
        self._inbox = inbox
        self._store = store
        self._seq = itertools.count()
        self._window = window
        self._in_flight = 0
        self._cond = threading.Condition()

    def submit_score(self, key: int) -> None:
        with self._cond:
            self._cond.wait_for(lambda: self._in_flight < self._window)
        seq = next(self._seq)
        try:
            batch = self._store.resolve(key)
        except BatchNotAvailable as err:
            log.warning("batch %s is gone, its call is cancelled", err)
            return
        with self._cond:
            self._in_flight += 1
        self._inbox.put(Call("default", seq, "score", (batch,)))

    def finished(self) -> None:
        with self._cond:
            self._in_flight -= 1
            self._cond.notify_all()

    @property
    def in_flight(self) -> int:
        with self._cond:
            return self._in_flight
