"""`os.fork`, and the calls of `os` that the kernel refuses to a process of several threads.

On Pythons that count threads for their warning after all else (see `forks`) the hook's
thread can start again only once `os.fork` has returned. The replacement has no frame of its own, so
a warning still points to the program's line, and so does a traceback.

`unshare(CLONE_NEWUSER)` and `setns` to a user namespace fail with EINVAL in a process of several
threads (unshare(2), setns(2)). So the hook's thread ends before `os.unshare` and `os.setns`, which
Python has since 3.12, and starts again after them. A program that calls the C library by ctypes or
from an extension cannot be heard: there the call fails while the hook is attached, also in forked
children, which get a thread with their first record.
"""

from __future__ import annotations

import functools
import os
import sys

from ..lifecycle.fork import counts_late
from ..lifecycle.patcher import Point, attribute
from ..safe import foreign_exceptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..session import Session


def _fork(original: Callable[[], Any], session: Session) -> Callable[[], Any]:
    def returned(result: Any) -> Any:
        # In the child this does nothing: there the hook sleeps until something happens.
        session.resume()
        return result

    # What `iter` makes calls the original once for each `next`, for ever: it never gives None.
    return functools.partial(next, map(returned, iter(original, None)))


def _alone(original: Callable[..., Any], session: Session) -> Callable[..., Any]:
    def alone(*args: Any, **kwargs: Any) -> Any:
        session.stop_thread()
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            foreign_exceptions.unframe(error)
            raise
        finally:
            if session.state == "on":
                session.server.start()

    return alone


_ALONE = tuple(
    Point(f"os.{name}", "os", attribute(name, _alone), "3.12")
    for name in ("unshare", "setns")
    if hasattr(os, name)
)
POINTS = (
    *_ALONE,
    *(
        (
            Point("os.fork", "os", attribute("fork", _fork), "3.12"),
            Point("os.forkpty", "os", attribute("forkpty", _fork), "3.12"),
        )
        if counts_late(sys.version_info[:3])
        else ()
    ),
)
