"""`os.fork`, and the functions of `os` that the kernel refuses to a process of several threads.

Some Pythons count the threads for their warning as the last step of a fork (see `lifecycle.fork`).
There the hook's thread can start again only once `os.fork` has returned. The replacement has no
frame of its own, so warnings and tracebacks still point to the program's line.

`unshare(CLONE_NEWUSER)` and `setns` to a user namespace fail with EINVAL in a process of several
threads (unshare(2), setns(2)). So the hook's thread ends before `os.unshare` and `os.setns`, which
Python has since 3.12, and starts again after them. Calls of the C library by ctypes or from an
extension cannot be seen: they fail while the hook is attached, also in forked children, whose
thread starts with their first record.
"""

from __future__ import annotations

import functools
import os
import sys

from ..lifecycle.fork import counts_late
from ..safe import foreign_exceptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..context import Context


def wrap_fork(original: Callable[[], Any], session: Context) -> Callable[[], Any]:
    """Start the hook's thread again once the original has returned in the parent."""

    def returned(result: Any) -> Any:
        # In the child this does nothing: there the hook starts with the first record.
        session.resume()
        return result

    # The iterator calls the original once for each `next`, without end: it never returns None.
    return functools.partial(next, map(returned, iter(original, None)))


def wrap_single_threaded(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """End the hook's thread for the time of one call."""

    def single_threaded(*args: Any, **kwargs: Any) -> Any:
        session.stop_thread()
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            foreign_exceptions.unframe(error)
            raise
        finally:
            if session.state == "on":
                session.start_thread()

    return single_threaded


SINGLE_THREADED = tuple(name for name in ("unshare", "setns") if hasattr(os, name))
"""Functions of `os` that the kernel may refuse to a process of several threads; Python 3.12."""
FORKS = ("fork", "forkpty") if counts_late(sys.version_info[:3]) else ()
"""Functions of `os` after which the hook's thread has to be started by a wrapper."""
