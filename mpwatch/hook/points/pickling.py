"""Objects that are pickled for spawned children: why one fails, and where its storages are."""

from __future__ import annotations

import pickle

from .. import checks
from ..safe import foreign_exceptions
from ..safe.exact import class_name, is_a

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..context import Context

MANY = 200
"""Storages in one object that are searched for: forkserver fails at 252, each is a mapping."""


def wrap_dump(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """Note an object that does not pickle, and one that holds many storages."""
    here, many = session.here, ManyStorages(session)

    def dump(thing: Any, *args: Any, **kwargs: Any) -> Any:
        own = here.own
        own.shares, own.storages_path = 0, None
        try:
            result = original(thing, *args, **kwargs)
        except BaseException as error:
            _note_unpicklable(session, thing, error)
            many.find(thing)
            foreign_exceptions.unframe(error)
            raise
        many.find(thing)
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


class ManyStorages:
    """Notes which part of an object holds many storages that were shared for a new process."""

    __slots__ = ("_known", "_session")

    def __init__(self, session: Context) -> None:
        self._session = session
        self._known: tuple[str, int, str] | None = None

    def find(self, thing: Any) -> None:
        """Find the part that holds them if they are many; equal objects are noted once."""
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
            own.storages_path = self._known[2]
        except Exception as error:
            if not foreign_exceptions.is_ours(error):
                raise
