"""Whose exception is it: what the hook may swallow, and what it must let through or deliver again.

A signal handler runs between any two bytecodes of the main thread, also those of the hook, and may
raise: Ctrl-C does, and so does the SIGCHLD handler of torch's DataLoader when a worker died. Such
an exception belongs to the program.

What passes a wrapper is as it would be without: its type, text, cause, and the lines of its
traceback, from which `unframe` takes the wrapper's own. Not on Python 3.10, where that line stays,
once, before those of what was called. There a bare `raise` puts back the traceback that was the
exception's as the `except` began (`do_raise` and the opcode RERAISE of its ceval.c), whatever it
has now, and of the entry that this begins with only `tb_next` can be set. Any other way to let an
exception out of a function written in Python, `raise error` or a generator's `throw`, adds an entry
for that function. One written in C would add none, but what stands in the place of a function has
to be one itself: it is bound to instances, pickled by name, and its signature asked for.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType, TracebackType
    from typing import Any


_OWN = __file__.rpartition("/")[0] + "/"


def is_ours(error: BaseException) -> bool:
    """Whether the hook's own bookkeeping raised this, so that swallowing it hides nothing.

    Bookkeeping raises built-in exceptions and those of `struct`; whatever else surfaces in it was
    put there from outside (a signal handler, `PyThreadState_SetAsyncExc`).
    """
    if not isinstance(error, Exception):
        return False
    if type(error).__module__ not in ("builtins", "struct"):
        return False
    return signal_behind(error) is None


def signal_behind(error: BaseException) -> int | None:
    """Number of the signal whose handler raised, or `None` if no handler was involved.

    `KeyboardInterrupt` is always taken for SIGINT: its usual handler is written in C and leaves no
    frame behind.
    """
    if isinstance(error, KeyboardInterrupt):
        return int(_signal.SIGINT)
    codes: dict[CodeType, list[int]] = {}
    for number in range(1, _signal.NSIG):
        try:
            code = _code_of(_signal.getsignal(number))
        except (ValueError, OSError):
            continue
        if code is not None:
            codes.setdefault(code, []).append(number)
    step: TracebackType | None = error.__traceback__
    while step is not None:
        numbers = codes.get(step.tb_frame.f_code)
        if numbers is not None:
            return _number_in(step.tb_frame, numbers)
        step = step.tb_next
    return None


def _number_in(frame: FrameType, numbers: list[int]) -> int:
    """Which of the signals of one handler it was called for, by its arguments."""
    code = frame.f_code
    named = code.co_argcount + code.co_kwonlyargcount
    for name in code.co_varnames[: named + 1]:  # `*args` come after those with a name
        value = frame.f_locals.get(name)
        for each in value if type(value) is tuple else (value,):
            if isinstance(each, int) and each in numbers:
                return int(each)
    return numbers[0]


def unframe(error: BaseException) -> None:
    """Take the wrapper's own line off a traceback that passes through it.

    Call it in the wrapper's `except` clause, right before a bare `raise`. On Python 3.10 it stays.
    """
    step = error.__traceback__
    if step is not None:
        # Nothing remains of a call that did not even begin, with arguments that do not fit.
        error.__traceback__ = step.tb_next


def frames_of(error: BaseException, limit: int = 12) -> list[list[Any]]:
    """Function, file and line of the innermost frames an exception passed, innermost first.

    Those of wrappers are left out: nobody wrote them into the program.
    """
    frames = []
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if not code.co_filename.startswith(_OWN):
            frames.append([code.co_name, code.co_filename, step.tb_lineno])
        step = step.tb_next
    return frames[-limit:][::-1]


def frames_here(skip: int, limit: int = 16) -> list[list[Any]]:
    """Function, file and line of the calling thread's frames, innermost first.

    Args:
        skip: Frames to leave out, counted from the caller of this function.
        limit: Frames kept at most.
    """
    frames: list[list[Any]] = []
    try:
        frame = sys._getframe(skip + 1)
    except ValueError:
        return frames
    step: Any = frame
    while step is not None and len(frames) < limit:
        code = step.f_code
        if not code.co_filename.startswith(_OWN):
            frames.append([code.co_name, code.co_filename, step.f_lineno])
        step = step.f_back
    return frames


def text_of(error: BaseException, limit: int = 1000) -> str:
    """The message of an exception, bounded; an exception that cannot be shown gives its reason."""
    try:
        return str(error)[:limit]
    except Exception as failure:  # noqa: BLE001 - a foreign `__str__` may raise anything
        return f"<{type(failure).__name__} while reading the message>"


def _code_of(handler: Any) -> CodeType | None:
    """The code that a signal handler runs: a function's, a method's, or a callable object's."""
    function: Any = getattr(handler, "func", handler)  # functools.partial
    function = getattr(function, "__func__", function)
    code: CodeType | None = getattr(function, "__code__", None)
    if code is None and callable(function) and not isinstance(function, type):
        code = getattr(type(function).__call__, "__code__", None)
    return code
