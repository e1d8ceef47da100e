"""The rendezvous of `torch.distributed`: a store that could not be made.

A program may catch the error and try another port, and then nothing is wrong. So a failure is
noted only once nothing has succeeded for a while; one that ends the process is noted by its end.
"""

from __future__ import annotations

from ..lifecycle.patcher import Point, attribute
from ..safe import foreign_exceptions
from ..safe.exact import is_a

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from ..lifecycle.patcher import Undo
    from ..session import Session

GRACE_NS = 5_000_000_000
NAME = "_create_c10d_store"
"""What both `tcp://` and `env://` make their store with, torch 2.1 to 2.14."""


class Failure:
    """The last failure that no success has followed, as the fields of a note."""

    __slots__ = ("at_ns", "fields")

    def __init__(self) -> None:
        self.at_ns = 0
        self.fields: dict[str, Any] | None = None


def _wrap(original: Callable[..., Any], session: Session, failure: Failure) -> Callable[..., Any]:
    def create_store(*args: Any, **kwargs: Any) -> Any:
        try:
            store = original(*args, **kwargs)
        except BaseException as error:
            if is_a(error, Exception):
                failure.at_ns = session.system.monotonic_ns()
                failure.fields = {
                    "where": "rendezvous",
                    "type": type(error).__name__,
                    "text": foreign_exceptions.text_of(error),
                    "frames": foreign_exceptions.frames_here(1),
                    "tid": session.system.get_native_id(),
                }
            foreign_exceptions.unframe(error)
            raise
        failure.fields = None
        return store

    return create_store


def _install(module: ModuleType, session: Session) -> Undo:
    """Wrap the function, and look at what became of a failure whenever gauges are asked for."""
    failure = Failure()
    undo = attribute(NAME, lambda original, session: _wrap(original, session, failure))(
        module, session
    )

    def settle() -> None:
        fields = failure.fields
        if fields is not None and session.system.monotonic_ns() - failure.at_ns > GRACE_NS:
            failure.fields = None
            session.note("exception", **fields)

    session.gauges["rendezvous"] = settle

    def undo_both() -> None:
        session.drop_gauges("rendezvous")
        undo()

    return undo_both


POINTS = (Point("rendezvous store", "torch.distributed.rendezvous", _install),)
