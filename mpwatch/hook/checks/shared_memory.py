"""The lines that create blocks of `multiprocessing.shared_memory`, noted as `call-site`.

Most jobs never import that module, so this code is loaded once a program has.
"""

from __future__ import annotations

from ..safe import foreign_exceptions
from ..safe.exact import attributes
from ..state.call_sites import APART_NS, BURST_NS, place_here

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..context import Context


def wrap_init(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """Note the line of a new block: on average four notes a second at most, eight at once."""
    due_ns = 0

    def init(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal due_ns
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            foreign_exceptions.unframe(error)
            raise
        try:
            now_ns = session.system.monotonic_ns()
            # The signature is (name=None, create=False, size=0, *, track=True), Python 3.8 to 3.15.
            is_new = (args[1] if len(args) > 1 else kwargs.get("create")) is True
            if is_new and now_ns > due_ns and (site := place_here()) is not None:
                due_ns = max(due_ns, now_ns - BURST_NS) + APART_NS
                found = session.system.os.fstat(attributes(self)["_fd"])
                session.note(
                    "call-site",
                    inode=found.st_ino,
                    device=found.st_dev,
                    site=site[:128],
                    bytes=found.st_size,
                )
        except BaseException as error:
            if not foreign_exceptions.is_ours(error):
                raise
        return result

    return init
