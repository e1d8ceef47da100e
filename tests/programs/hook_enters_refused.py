"""Attaches and detaches the hook while an audit hook refuses what that does.

Usage: `hook_enters_refused.py EVENT CLASS`; EVENT is the beginning of names, also an empty one.
Nothing is printed unless an exception arrives here, or nothing was refused.
"""

from __future__ import annotations

import multiprocessing.queues  # noqa: F401 - the hook replaces parts of it
import sys
import threading
from types import FrameType

import mpwatch


class Refused(Exception):
    pass


class Stopped(BaseException):
    pass


prefix, name = sys.argv[1:]
KINDS: dict[str, type[BaseException]] = {
    "own": Refused,
    "base": Stopped,
    "RuntimeError": RuntimeError,
    "PermissionError": PermissionError,
    "SystemExit": SystemExit,
    "KeyboardInterrupt": KeyboardInterrupt,
}
kind = KINDS[name]
asking = threading.local()
is_on = False
count = 0


def refuse(event: str, _arguments: object) -> None:
    global count
    if is_on and event.startswith(prefix) and is_of_the_hook():
        count += 1
        raise kind


def is_of_the_hook() -> bool:
    """Whether code of the hook, or the import system for it, has called what raises the event.

    That question is an event, too.
    """
    if getattr(asking, "is_on", False):
        return False
    asking.is_on = True
    try:
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        return frame is not None and "/mpwatch/" in frame.f_code.co_filename
    finally:
        asking.is_on = False


sys.addaudithook(refuse)
is_on = True
try:
    mpwatch.instrument()
    assert mpwatch.uninstrument()
except BaseException as error:  # noqa: BLE001 - the output of this program
    is_on = False
    print(repr(error))
is_on = False
if not count:
    print("nothing was refused")
