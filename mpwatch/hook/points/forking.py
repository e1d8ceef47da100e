"""`os.fork` itself, on Pythons that count threads for their warning after all else: see `forks`.

There the hook's thread can start again only once `os.fork` has returned. The replacement has no
frame of its own, so a warning still points to the program's line, and so does a traceback.
"""

from __future__ import annotations

import functools
import sys

from ..forks import counts_late
from ..patching import Point, attribute

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


POINTS = (
    (
        Point("os.fork", "os", attribute("fork", _fork), "3.12"),
        Point("os.forkpty", "os", attribute("forkpty", _fork), "3.12"),
    )
    if counts_late(sys.version_info[:3])
    else ()
)
