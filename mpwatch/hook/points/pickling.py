"""Objects on their way into spawned children: why one does not pickle, and what it holds."""

from __future__ import annotations

import pickle

from .. import errors
from ..luggage import heaviest
from ..patching import Point, attribute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ..session import Session

PROBES = 400
"""How many parts of an object are tried at most before giving up."""
PROBE_NS = 500_000_000
DEPTH = 8
MANY = 200
"""Storages in one object worth a look: forkserver refuses 252, and each is a mapping."""
_LEFT_OUT = ("torch", "multiprocessing", "_multiprocessing", "_io", "socket")
"""Packages whose objects are not pickled for a try: that would share memory or copy descriptors."""


class _Sink:
    """A file that keeps nothing."""

    def write(self, data: Any) -> int:
        return len(data)


class _Prober(pickle.Pickler):
    """Pickles plain objects only, to see whether they can be."""

    def persistent_id(self, thing: Any) -> Any:
        kind = type(thing)
        if kind is type or callable(thing):
            return None
        return "left out" if kind.__module__.partition(".")[0] in _LEFT_OUT else None


class Search:
    """Looks for the innermost part of an object that does not pickle."""

    __slots__ = ("_deadline_ns", "_left", "_now")

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._deadline_ns = now() + PROBE_NS
        self._left = PROBES

    def find(self, thing: Any, path: str = "", depth: int = 0) -> str | None:
        """The path to it from `thing`, or `None` if every part that was tried pickles."""
        # Of the whole it is known already.
        if depth and self._pickles(thing):
            return None
        if depth < DEPTH:
            for step, part in _parts(thing):
                found = self.find(part, path + step, depth + 1)
                if found is not None:
                    return found
                if self._left <= 0 or self._now() > self._deadline_ns:
                    break
        return path or None

    def _pickles(self, thing: Any) -> bool:
        self._left -= 1
        try:
            _Prober(_Sink()).dump(thing)
        except Exception as error:
            if errors.signal_behind(error) is not None:
                raise
            return False
        return True


def _parts(thing: Any) -> Iterator[tuple[str, Any]]:
    """The parts of an object with the step that leads to each."""
    if isinstance(thing, dict):
        for key, part in tuple(thing.items()):
            yield f"[{key!r:.64}]", part
    elif isinstance(thing, (list, tuple, set, frozenset)):
        for index, part in enumerate(tuple(thing)):
            yield f"[{index}]", part
    elif not isinstance(thing, type) and hasattr(thing, "__dict__"):
        for name, part in tuple(vars(thing).items()):
            yield f".{name}", part


def _dump(original: Callable[..., Any], session: Session) -> Callable[..., Any]:
    here, noted = session.here, Burden(session)

    def dump(thing: Any, *args: Any, **kwargs: Any) -> Any:
        own = here.own
        own.shares, own.burden = 0, None
        try:
            result = original(thing, *args, **kwargs)
        except BaseException as error:
            if isinstance(error, (pickle.PicklingError, TypeError, AttributeError)):
                session.note(
                    "unpicklable",
                    path=Search(session.system.monotonic_ns).find(thing),
                    object=type(thing).__qualname__,
                    type=type(error).__name__,
                    text=errors.text_of(error),
                )
            noted.weigh(thing)
            errors.unframe(error)
            raise
        noted.weigh(thing)
        return result

    return dump


class Burden:
    """Notes where in an object the many storages are that had to be shared for a new process."""

    __slots__ = ("_known", "_session")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: tuple[str, int, str] | None = None

    def weigh(self, thing: Any) -> None:
        """Look where they are if they are many; workers that get the same are noted once."""
        own = self._session.here.own
        if own.shares < MANY:
            return
        kind, shared = type(thing).__qualname__, own.shares
        try:
            if self._known is None or self._known[:2] != (kind, shared):
                self._known = kind, shared, heaviest(thing)[0]
                self._session.note(
                    "many-storages", path=self._known[2], object=kind, storages=shared
                )
            own.burden = self._known[2]
        except Exception as error:
            if not errors.is_ours(error):
                raise


POINTS = (Point("reduction.dump", "multiprocessing.reduction", attribute("dump", _dump)),)
