"""Descriptors sent between processes by `multiprocessing.resource_sharer`."""

from __future__ import annotations

from ..safe import foreign_exceptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from ..context import Context
    from ..lifecycle.patcher import Undo


def wrap_detach(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """Note a descriptor that could not be received."""
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


def add_gauges(module: ModuleType, session: Context) -> Undo:
    """Add the gauges `sharer` and `sharer_tickets`, the descriptors not received yet."""
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
