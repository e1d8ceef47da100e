"""The rendezvous of `torch.distributed`: a store that could not be created.

A program may catch the error and try another port, which is no fault. So a failure is
noted only if no call has succeeded for `GRACE_NS`; one that ends the process is noted at its exit.
"""

from __future__ import annotations

from ..lifecycle.patcher import attribute
from ..safe import foreign_exceptions
from ..safe.exact import is_a

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from ..context import Context
    from ..lifecycle.patcher import Undo

GRACE_NS = 5_000_000_000
NAME = "_create_c10d_store"
"""The function by which both `tcp://` and `env://` create their store, torch 2.1 to 2.14."""


class Failure:
    """The last failure without a later success, as the fields of a note."""

    __slots__ = ("at_ns", "fields")

    def __init__(self) -> None:
        self.at_ns = 0
        self.fields: dict[str, Any] | None = None


def _wrap(original: Callable[..., Any], session: Context, failure: Failure) -> Callable[..., Any]:
    def create_store(*args: Any, **kwargs: Any) -> Any:
        try:
            store = original(*args, **kwargs)
        except BaseException as error:
            if is_a(error, Exception):
                failure.at_ns = session.system.monotonic_ns()
                failure.fields = {
                    "where": "rendezvous",
                    "type": foreign_exceptions.type_of(error),
                    "text": foreign_exceptions.text_of(error),
                    "frames": foreign_exceptions.frames_here(1),
                    "tid": session.system.get_native_id(),
                }
            foreign_exceptions.unframe(error)
            raise
        failure.fields = None
        return store

    return create_store


def install(module: ModuleType, session: Context) -> Undo:
    """Wrap the function; a failure that lasts is noted when gauges are read."""
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
