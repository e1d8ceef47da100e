"""Descriptors on their way between processes: the tickets of `multiprocessing.resource_sharer`."""

from __future__ import annotations

from ..lifecycle.patcher import Point, attribute
from ..safe import foreign_exceptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from ..lifecycle.patcher import Undo
    from ..session import Session


def _detach(original: Callable[..., Any], session: Session) -> Callable[..., Any]:
    here, now = session.here, session.system.monotonic_ns

    def detach(self: Any) -> Any:
        here.own.began_ns = now()
        try:
            return original(self)
        except BaseException as error:
            address, key = getattr(self, "_id", (None, None))
            session.note(
                "ticket-failed",
                address=str(address)[:256],
                ticket=key,
                type=type(error).__name__,
                text=foreign_exceptions.text_of(error),
                tid=session.system.get_native_id(),
            )
            foreign_exceptions.unframe(error)
            raise

    return detach


def _gauge(module: ModuleType, session: Session) -> Undo:
    sharer: Any = module._resource_sharer
    if not isinstance(sharer._cache, dict):
        raise TypeError("the resource sharer keeps its tickets elsewhere")

    def tickets() -> dict[str, Any]:
        address = sharer._address
        return {
            "outstanding": len(sharer._cache),
            "issued": sharer._key,
            "address": None if address is None else str(address)[:256],
        }

    session.gauges["sharer"] = tickets
    session.gauges["sharer_tickets"] = lambda: len(sharer._cache)
    return lambda: session.drop_gauges("sharer", "sharer_tickets")


POINTS = (
    Point("DupFd.detach", "multiprocessing.resource_sharer", attribute("DupFd.detach", _detach)),
    Point("resource_sharer tickets", "multiprocessing.resource_sharer", _gauge),
)
