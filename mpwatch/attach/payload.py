"""The program that runs inside a target: does its errand with the hook and says how that went.

Its text is laid down for the target together with an argument and is run there between two
bytecodes of the main thread, with `parcel` naming the directory of both. It needs nothing but the
standard library of Python 3.10 or later, and it raises nothing: an exception of the program's own
signal handlers that surfaces in here belongs to the program and is raised again there as soon as
this is over.
"""

from __future__ import annotations

import _functools  # type: ignore[import-not-found]
import _operator
import _thread
import gc
import marshal
import os
import posix
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

KNOCK_S = 0.01
_IMPORT_FILE = "<frozen importlib._bootstrap>"
"""Where the interpreter imports; its `_load_unlocked` has a module's `spec` (3.10 to 3.15)."""
LATER = "later"
"""The answer of a program that is in the middle of an import."""


def run(parcel: str) -> None:
    """Do the errand, leave the result beside it, and hand on what was not ours.

    No garbage is collected meanwhile. Thousands of new objects would bring the collection of all
    generations about, which takes a worker of torch 0.1 s and, where it was forked, has it copy
    all of the heap that it shares with its parent.

    Another thread may fork meanwhile. In the child nobody would end what this one began, so the
    interpreter is told to, by nothing but C: what it calls after a fork cannot be taken back.
    """
    foreign = _run_uncollected(parcel) if gc.isenabled() else _run(parcel)
    if foreign is not None:
        raise_later(foreign)


def _run_uncollected(parcel: str) -> BaseException | None:
    """Do the errand, and have garbage collected again, also in a child that is forked meanwhile."""
    owed: dict[str, Any] = {}
    call, take = _operator.methodcaller("__call__"), _functools.partial(owed.pop, "gc", bool)
    try:
        come_back = _functools.partial(next, map(call, iter(take, None)))
        posix.register_at_fork(after_in_child=come_back)
        owed["gc"] = gc.enable
        return _run(parcel)
    finally:
        gc.enable()
        owed.clear()


def _run(parcel: str) -> BaseException | None:
    """Do the errand and leave the result; what a signal handler of the program raised meanwhile."""
    foreign: BaseException | None = None
    try:
        gc.disable()
        with open(parcel + "/argument", encoding="utf-8", errors="surrogateescape") as file:
            errand, hook_directory = file.read().split("\n")[:2]
        result = LATER if is_importing() else ERRANDS[errand](hook_directory, parcel)
    except BaseException as error:  # noqa: BLE001 - nothing may escape into the interpreter
        if is_foreign(error):
            foreign, result = error, "a signal handler of the program interrupted it"
        else:
            result = f"{type(error).__name__}: {error}"
    try:
        answer(parcel, result)
    except BaseException as error:  # noqa: BLE001 - as above
        foreign = foreign or (error if is_foreign(error) else None)
    return foreign


def is_importing() -> bool:
    """Whether a module of the standard library is half imported.

    To import it now would use it as it is, or load a second copy of it for good: `importlib.util`
    would then fail in the program for ever (seen with CPython 3.11, where `.pth` files of `site`
    import it). So `signal`, which imports others in turn, is imported below where it is needed.

    The calls of all threads tell it, and cost a worker nothing: to look at every module instead
    would have a forked process copy a thousand pages that it shares with its parent.
    """
    if "greenlet" in sys.modules:
        return _is_half_imported()  # one that is put aside is in no thread's calls
    newest = list(sys._current_frames().values())
    try:
        return any(map(_imports_standard, newest))
    finally:
        newest.clear()  # this very call is among them, and would hold on to all of them


def _imports_standard(frame: FrameType | None) -> bool:
    """Whether a thread is importing a module of the standard library, by its newest call."""
    while frame is not None:
        code = frame.f_code
        is_import = code.co_name == "_load_unlocked" and code.co_filename == _IMPORT_FILE
        if is_import and _is_standard(getattr(frame.f_locals.get("spec"), "name", "")):
            return True
        frame = frame.f_back
    return False


def _is_half_imported() -> bool:
    """Whether any module says so itself."""
    for name, module in tuple(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if _is_standard(name) and getattr(spec, "_initializing", False):
            return True
    return False


def _is_standard(name: str) -> bool:
    return name.partition(".")[0] in sys.stdlib_module_names


def load(hook_directory: str, parcel: str) -> str:
    """Bring the hook in; an empty text is success."""
    compiled = unpack(parcel + "/hook")
    path = hook_directory + "/stowaway.py"
    if "stowaway" in compiled:
        code = compiled["stowaway"][2]
    else:
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec")
    stowaway: dict[str, Any] = {"__name__": "mpwatch_payload_stowaway", "__file__": path}
    exec(code, stowaway)
    if stowaway["load"](hook_directory, "attach", compiled=compiled) is None:
        return str(stowaway["reason"] or "the hook refused")
    return ""


def unpack(path: str) -> dict[str, Any]:
    """The hook's modules as the observer compiled them; none if it did so for another Python."""
    from importlib.util import MAGIC_NUMBER

    try:
        with open(path, "rb") as file:
            content = file.read()
        if content.startswith(MAGIC_NUMBER):
            start = len(MAGIC_NUMBER) + 4  # of the payload itself, whose length comes before it
            start += int.from_bytes(content[start - 4 : start], "little")
            compiled: dict[str, Any] = marshal.loads(memoryview(content)[start:])
            return compiled
    except (OSError, EOFError, ValueError, TypeError):
        pass  # it was left out, or the disk was full: their own files do
    return {}


def unload(_hook_directory: str, _parcel: str) -> str:
    """Take the hook out; an empty text is success, also when it was not there."""
    package = sys.modules.get("_mpwatch_hook")
    if package is None or package.uninstrument():
        return ""
    return "the hook did not leave"


ERRANDS = {"load": load, "unload": unload}


def answer(parcel: str, result: str) -> None:
    """Write the result so that it appears at once and whole; tidy up if nobody waits for it."""
    if not result and os.path.exists(parcel + "/unattended"):
        for name in os.listdir(parcel):
            os.unlink(parcel + "/" + name)
        os.rmdir(parcel)
        return
    with open(parcel + "/.result", "w", encoding="utf-8", errors="replace") as file:
        file.write((result or "done")[:1000])
    os.rename(parcel + "/.result", parcel + "/result")


def is_foreign(error: BaseException) -> bool:
    """Whether a signal handler of the program raised this."""
    if not isinstance(error, Exception):
        return True
    import signal

    codes = set()
    for number in range(1, signal.NSIG):
        try:
            handler = signal.getsignal(number)
        except (ValueError, OSError):
            continue
        codes.add(getattr(getattr(handler, "__func__", handler), "__code__", None))
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code in codes:
            return True
        step = step.tb_next
    return False


def raise_later(error: BaseException) -> None:
    """Raise an exception in the program, from where a signal handler would have raised it.

    A handler is lent for one knock to a signal that has one already, and given back by the knock.
    """
    import signal

    for number in (signal.SIGINT, *range(1, signal.NSIG)):
        try:
            handler = signal.getsignal(number)
        except (ValueError, OSError):
            continue
        if callable(handler):
            break
    else:
        return

    def knock() -> None:
        time.sleep(KNOCK_S)
        _thread.interrupt_main(number)

    def hand_on(_number: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code is run.__code__:
                _thread.start_new_thread(knock, ())
                return
            frame = frame.f_back
        signal.signal(number, handler)
        raise error

    signal.signal(number, hand_on)
    _thread.start_new_thread(knock, ())


if __name__ == "mpwatch_payload":
    run(globals()["parcel"])
