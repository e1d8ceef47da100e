"""Objects on their way into spawned children: why one does not pickle, and what it holds."""

from __future__ import annotations

import pickle

from .. import checks
from ..lifecycle.patcher import Point, attribute
from ..safe import foreign_exceptions
from ..safe.exact import class_name, is_a

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..context import Context

MANY = 200
"""Storages in one object worth a look: forkserver refuses 252, and each is a mapping."""


def _dump(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    here, noted = session.here, Burden(session)

    def dump(thing: Any, *args: Any, **kwargs: Any) -> Any:
        own = here.own
        own.shares, own.burden = 0, None
        try:
            result = original(thing, *args, **kwargs)
        except BaseException as error:
            _note_unpicklable(session, thing, error)
            noted.weigh(thing)
            foreign_exceptions.unframe(error)
            raise
        noted.weigh(thing)
        return result

    return dump


def _note_unpicklable(session: Context, thing: Any, error: BaseException) -> None:
    """Note which part of an object could not be pickled; never raises."""
    if not any(is_a(error, kind) for kind in (pickle.PicklingError, TypeError, AttributeError)):
        return
    try:
        text = foreign_exceptions.text_of(error)
        session.note(
            "unpicklable",
            path=checks.load("unpicklable").path_to_unpicklable(thing, text),
            object=class_name(type(thing)),
            type=class_name(type(error)),
            text=text,
        )
    except Exception as failure:
        if not foreign_exceptions.is_ours(failure):
            raise


class Burden:
    """Notes where in an object the many storages are that had to be shared for a new process."""

    __slots__ = ("_known", "_session")

    def __init__(self, session: Context) -> None:
        self._session = session
        self._known: tuple[str, int, str] | None = None

    def weigh(self, thing: Any) -> None:
        """Look where they are if they are many; workers that get the same are noted once."""
        own = self._session.here.own
        if own.shares < MANY:
            return
        kind, shared = class_name(type(thing)), own.shares
        try:
            if self._known is None or self._known[:2] != (kind, shared):
                self._known = kind, shared, checks.load("object_walk").heaviest(thing)[0]
                self._session.note(
                    "many-storages", path=self._known[2], object=kind, storages=shared
                )
            own.burden = self._known[2]
        except Exception as error:
            if not foreign_exceptions.is_ours(error):
                raise


POINTS = (Point("reduction.dump", "multiprocessing.reduction", attribute("dump", _dump)),)
