"""Whose exception is it: what the hook may swallow, and what it must let through or deliver again.

A signal handler runs between any two bytecodes of the main thread, also those of the hook, and may
raise: Ctrl-C does, and so does the SIGCHLD handler of torch's DataLoader when a worker died. Such
an exception belongs to the program.

What passes a wrapper is as it would be without: its type, text, cause, and the lines of its
traceback, from which `unframe` takes the wrapper's own.

On Python 3.10 that takes more than a new `__traceback__`. There a bare `raise` puts back the
traceback that was the exception's as the `except` began (`do_raise` of its ceval.c), whatever it
has now, and of the entry that this begins with only `tb_next` can be set. Any other way to let an
exception out of a function written in Python, `raise error` or a generator's `throw`, adds an entry
for that function. One written in C would add none, but what stands in the place of a function has
to be one itself: it is bound to instances, pickled by name, and its signature asked for. So what
was put aside is replaced, by the interpreter's own `PyErr_SetExcInfo`. That is called through
ctypes, which torch and `forks` import there; on a Python built without it the line stays.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import sys

from . import exact

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType, TracebackType
    from typing import Any


traceback_of: Callable[[BaseException], TracebackType | None] = BaseException.__dict__[
    "__traceback__"
].__get__
"""The traceback of an exception, also of one whose class overrides `__getattribute__`."""
context_of: Callable[[BaseException], BaseException | None] = BaseException.__dict__[
    "__context__"
].__get__
_arguments: Callable[[BaseException], tuple[Any, ...]] = BaseException.__dict__["args"].__get__
_set_traceback: Callable[[BaseException, TracebackType | None], None] = BaseException.__dict__[
    "__traceback__"
].__set__
_file_name: Callable[[BaseException], Any] = OSError.__dict__["filename"].__get__
_WRITTEN_IN_C = type(BaseException.__str__)
_OWN = __file__.rpartition("/safe/")[0] + "/"


def is_ours(error: BaseException) -> bool:
    """Whether the hook's own bookkeeping raised this, so that swallowing it hides nothing.

    Bookkeeping raises built-in exceptions and those of `struct`; whatever else surfaces in it was
    put there from outside (a signal handler, `PyThreadState_SetAsyncExc`).
    """
    if not exact.is_a(error, Exception):
        return False
    if exact.module_of_class(type(error)) not in ("builtins", "struct"):
        return False
    return signal_behind(error) is None


def signal_behind(error: BaseException) -> int | None:
    """Number of the signal whose handler raised, or `None` if no handler was involved.

    A `KeyboardInterrupt` that shows no handler is taken for SIGINT's: the usual one of that is
    written in C and leaves no frame behind.
    """
    codes: dict[CodeType, list[int]] = {}
    for number in range(1, _signal.NSIG):
        code = _code_of(_signal.getsignal(number))
        if code is not None:
            codes.setdefault(code, []).append(number)
    step: TracebackType | None = traceback_of(error)
    while step is not None:
        numbers = codes.get(step.tb_frame.f_code)
        if numbers is not None:
            return _number_in(step.tb_frame, numbers)
        step = step.tb_next
    return int(_signal.SIGINT) if exact.is_a(error, KeyboardInterrupt) else None


def _number_in(frame: FrameType, numbers: list[int]) -> int:
    """Which of the signals of one handler it was called for, by its arguments."""
    code = frame.f_code
    named = code.co_argcount + code.co_kwonlyargcount
    for name in code.co_varnames[: named + 1]:  # `*args` come after those with a name
        value = frame.f_locals.get(name)
        for each in value if type(value) is tuple else (value,):
            if type(each) is int and each in numbers:
                return each
    return numbers[0]


def _unframe(error: BaseException) -> None:
    """Take the wrapper's own line off a traceback that passes through it.

    Call it in the wrapper's `except` clause, right before a bare `raise`.
    """
    step = traceback_of(error)
    if step is not None:
        # Nothing remains of a call that did not even begin, with arguments that do not fit.
        _set_traceback(error, step.tb_next)


def _unframe_and_replace(error: BaseException) -> None:
    """Do so on Python 3.10, where each thread and generator has put a traceback aside."""
    _, handled, step = sys.exc_info()
    if handled is error and step is not None:
        cut(error, step.tb_next)


_PUTS_ASIDE = sys.version_info[:2] == (3, 10) and sys.implementation.name == "cpython"
unframe = _unframe_and_replace if _PUTS_ASIDE else _unframe


def cut(error: BaseException, step: TracebackType | None) -> None:
    """Let an exception go on with this traceback: in an `except` clause, before a bare `raise`."""
    global _replacing
    _set_traceback(error, step)
    if not _PUTS_ASIDE or sys.exc_info()[1] is not error:
        return
    if _replacing is None:
        _replacing = _functions_for_it()
    if _replacing:
        new_reference, set_handled = _replacing
        # It takes over the references. They are made in the same step of the interpreter, so that
        # no signal handler gets in between: one that raises would have left them for ever.
        set_handled(*map(new_reference, (type(error), error, step)))


_replacing: tuple[Any, ...] | None = None
"""`Py_NewRef` and `PyErr_SetExcInfo`; empty if they cannot be called, `None` while not looked for.

Both work on addresses. The second steals its references, and may replace what is handled only from
where that was caught: by a function called there and not by a generator, which has its own.
"""


def _functions_for_it() -> tuple[Any, ...] | None:
    """What `_replacing` should be."""
    ctypes: Any = sys.modules.get("ctypes")
    library = getattr(ctypes, "PyDLL", None)
    if library is None:
        return None
    try:
        # An instance of our own: the types set on functions of `ctypes.pythonapi` are everybody's.
        api = library(None)
        none = ctypes.c_char.in_dll(api, "_Py_NoneStruct")
        if ctypes.addressof(none) != id(None):
            return ()  # the process holds another Python as well
        address = ctypes.c_void_p
        api.Py_NewRef.argtypes, api.Py_NewRef.restype = (ctypes.py_object,), address
        api.PyErr_SetExcInfo.argtypes, api.PyErr_SetExcInfo.restype = (address,) * 3, None
    except Exception as failure:
        if signal_behind(failure) is not None:
            raise
        return ()
    return api.Py_NewRef, api.PyErr_SetExcInfo


def frames_of(error: BaseException, limit: int = 12) -> list[list[Any]]:
    """Function, file and line of the innermost frames an exception passed, innermost first.

    Those of wrappers are left out: nobody wrote them into the program.
    """
    frames = []
    step = traceback_of(error)
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
    step: Any = sys._getframe()
    while step is not None and skip >= 0:
        step, skip = step.f_back, skip - 1
    while step is not None and len(frames) < limit:
        code = step.f_code
        if not code.co_filename.startswith(_OWN):
            frames.append([code.co_name, code.co_filename, step.f_lineno])
        step = step.f_back
    return frames


def text_of(error: BaseException, limit: int = 1000) -> str:
    """The message of an exception, bounded, without running the program's code.

    A `__str__` that is written in Python is the program's or a library's, and what an exception was
    made with may be any object. So only the built-in exceptions' own `__str__` is called, and only
    where all arguments are plain values. Otherwise the arguments are joined.
    """
    arguments = _arguments(error)
    show = exact.in_class(error, "__str__")
    shown = arguments
    if exact.is_a(error, OSError):
        shown += (_file_name(error),)  # any object that was given for a path
    if type(show) is _WRITTEN_IN_C and all(exact.is_atom(each) for each in shown):
        try:
            return str(show(error))[:limit]
        except Exception as failure:
            # Some show attributes as well, to which the program may have given any value.
            if signal_behind(failure) is not None:
                raise
    return ", ".join(exact.text(each) for each in arguments)[:limit]


def _code_of(handler: Any) -> CodeType | None:
    """The code that a signal handler runs: a function's, a method's, or a callable object's."""
    code: CodeType | None = exact.code_of(handler)
    return code
