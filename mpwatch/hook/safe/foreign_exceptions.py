"""Exceptions inside wrappers: those of the hook are suppressed, all others reach the program.

A signal handler runs between any two bytecodes of the main thread, also those of the hook, and may
raise: Ctrl-C does, and so does the SIGCHLD handler of torch's DataLoader when a worker died. Such
an exception belongs to the program.

An exception that passes a wrapper keeps its type, text and cause, and `unframe` removes the
wrapper's own line from its traceback.

On Python 3.10 one line of the wrapper may remain: there a bare `raise` restores the traceback of
the beginning of the `except` clause (`do_raise` of its ceval.c).
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import itertools
import sys
from types import CodeType, FrameType, FunctionType

from . import exact

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any


traceback_of: Callable[[BaseException], TracebackType | None] = BaseException.__dict__[
    "__traceback__"
].__get__
"""The traceback of an exception, also of one whose class overrides `__getattribute__`."""
context_of: Callable[[BaseException], BaseException | None] = BaseException.__dict__[
    "__context__"
].__get__
_cause_of: Callable[[BaseException], BaseException | None] = BaseException.__dict__[
    "__cause__"
].__get__
_hides_context: Callable[[BaseException], bool] = BaseException.__dict__[
    "__suppress_context__"
].__get__
_CHAIN = 16
"""Exceptions of a chain that are followed; it may be a cycle."""
_arguments: Callable[[BaseException], tuple[Any, ...]] = BaseException.__dict__["args"].__get__
_set_traceback: Callable[[BaseException, TracebackType | None], None] = BaseException.__dict__[
    "__traceback__"
].__set__
_file_name: Callable[[BaseException], Any] = OSError.__dict__["filename"].__get__
_class_name: Callable[[type], str] = type.__dict__["__name__"].__get__
_BUILT_IN = ("builtins", "struct")
_OF_TRACING = (FrameType, CodeType)
_TRACED_WITH_A_VALUE = ("return", "exception")
"""Events of a trace function of which the argument can be a tuple."""
_ATTEMPTS = (1, 2, 3, 4)
"""Handlers may raise in some of them, a thousand times a second; a tuple, for no call may come
between."""
_VARIADIC = 0x04  # CO_VARARGS of inspect
_WRITTEN_IN_C = type(BaseException.__str__)
_OWN = __file__.rpartition("/safe/")[0] + "/"


def is_ours(error: BaseException) -> bool:
    """Whether the hook's own code is behind this, so that it may be suppressed.

    It raises built-in exceptions and those of `struct`, and an audit hook of the program may refuse
    what it does, by any exception. All others come from outside (a signal handler, a trace
    function, `PyThreadState_SetAsyncExc`).
    """
    if signal_behind(error) is not None:
        return False
    if exact.is_a(error, Exception) and exact.module_of_class(type(error)) in _BUILT_IN:
        return True
    answer, refusal = asked(_is_refused, error)
    return type(refusal) is type(error) if answer is None else answer


def asked(question: Callable[..., Any], *about: Any) -> tuple[Any, BaseException | None]:
    """The answer to a question about frames.

    Reading a frame or its code is an event for audit hooks, which may refuse that, too. They do it
    each time; what a signal handler raises here comes once, and passes.

    Returns:
        The answer and `None`, or `None` and what an audit hook has raised.
    """
    failure: BaseException | None = None
    for _ in _ATTEMPTS:
        try:
            answer = question(*about)
        except BaseException as raised:  # noqa: BLE001 - it is raised or returned below
            failure = raised
            continue
        if failure is not None:
            raise failure
        return answer, None
    return None, failure


def _is_refused(error: BaseException) -> bool:
    """Whether a function that the hook's code has called raised this, and not the interpreter's.

    The hook calls functions in C, which call audit hooks. A function for tracing, profiling or
    monitoring, or a signal's handler, is called there, too; the interpreter gives it a frame or a
    code object. An audit hook may pass a frame on, for reading that is an event.
    """
    step = traceback_of(error)
    is_interrupt = exact.is_a(error, KeyboardInterrupt)
    was_ours = is_refused = False
    while step is not None:
        is_ours_too = step.tb_frame.f_code.co_filename.startswith(_OWN)
        if is_refused or (was_ours and not is_ours_too):
            arguments = _arguments_of(step.tb_frame)
            if not is_refused and _are_of_audit(arguments):
                # Ctrl-C may strike in there.
                return not is_interrupt or len(_arguments(error)) > 0 or _is_statement(error)
            if is_interrupt or any(type(each) in _OF_TRACING for each in arguments):
                return False
            is_refused = True
        was_ours, step = is_ours_too, step.tb_next
    return is_refused or (was_ours and _is_of_c(error))


def _are_of_audit(arguments: list[Any]) -> bool:
    """Whether a function was called with the name of an event and a tuple of its arguments."""
    return any(
        type(name) is str and type(value) is tuple and name not in _TRACED_WITH_A_VALUE
        for name, value in itertools.pairwise(arguments)
    )


def _is_of_c(error: BaseException) -> bool:
    """Whether an exception without a frame was made by C code, as in an audit hook written in C.

    That gives it a message. What `PyThreadState_SetAsyncExc` raises, and the default handler of
    SIGINT, is made without arguments and has none but those that its class sets itself. A class
    whose `__init__` in Python cannot do without one is therefore made with a message.
    """
    init: Any = exact.in_class(error, "__init__")
    if type(init) is FunctionType:
        needed = init.__code__.co_argcount - len(init.__defaults__ or ())
        return needed > 1 and type(type(error)) is type
    return type(init) is _WRITTEN_IN_C and len(_arguments(error)) > 0


def _is_statement(error: BaseException) -> bool:
    """Whether a statement `raise` in the innermost frame has raised this."""
    instructions = []
    try:
        raise KeyError
    except KeyError as raised:
        for each in (error, raised):
            step: Any = traceback_of(each)
            while step.tb_next is not None:
                step = step.tb_next
            instructions.append(step.tb_frame.f_code.co_code[step.tb_lasti])
    return bool(instructions[0] == instructions[1])


def _arguments_of(frame: FrameType) -> list[Any]:
    """What a function was called with by position, as far as it still has that."""
    code = frame.f_code
    found = [frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount]]
    if code.co_flags & _VARIADIC:
        more = frame.f_locals.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount])
        found += more if type(more) is tuple else ()
    return found


def signal_behind(error: BaseException) -> int | None:
    """Number of the signal whose handler raised, or `None` if no handler was involved.

    A `KeyboardInterrupt` without a handler's frame counts as SIGINT's, unless an audit hook has
    raised it: the default handler is written in C and has no frame.
    """
    number, refusal = asked(_signal_behind, error)
    if refusal is None:
        return None if number is None else int(number)
    is_interrupt = exact.is_a(error, KeyboardInterrupt) and type(refusal) is not type(error)
    return int(_signal.SIGINT) if is_interrupt and not _arguments(error) else None


def _signal_behind(error: BaseException) -> int | None:
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
    is_interrupt = exact.is_a(error, KeyboardInterrupt) and not _is_refused(error)
    return int(_signal.SIGINT) if is_interrupt else None


def _number_in(frame: FrameType, numbers: list[int]) -> int:
    """The signal that a handler of several signals was called for, by its arguments."""
    code = frame.f_code
    named = code.co_argcount + code.co_kwonlyargcount
    for name in code.co_varnames[: named + 1]:  # `*args` come after those with a name
        value = frame.f_locals.get(name)
        for each in value if type(value) is tuple else (value,):
            if type(each) is int and each in numbers:
                return each
    return numbers[0]


def unframe(error: BaseException) -> None:
    """Remove the wrapper's own line from a traceback.

    Call it in the wrapper's `except` clause, right before a bare `raise`.
    """
    step = traceback_of(error)
    if step is not None:
        # Nothing remains of a call that did not begin because its arguments do not fit.
        _set_traceback(error, step.tb_next)


def frames_of(error: BaseException, limit: int = 12) -> list[list[Any]]:
    """Function, file and line of the frames that an exception passed, innermost first.

    Frames of wrappers are left out: they are not part of the program. There are none where an audit
    hook refuses to have them read.
    """
    frames, _ = asked(_frames_of, error)
    return frames[-limit:][::-1] if frames else []


def _frames_of(error: BaseException) -> list[list[Any]]:
    frames = []
    step = traceback_of(error)
    while step is not None:
        code = step.tb_frame.f_code
        if not code.co_filename.startswith(_OWN):
            frames.append([code.co_name, code.co_filename, step.tb_lineno])
        step = step.tb_next
    return frames


def named(error: BaseException) -> str:
    """Type and text of an exception in one line, bounded."""
    return f"{type_of(error)}: {text_of(error)}"[:500]


def described(error: BaseException) -> dict[str, Any]:
    """Type, text and frames of an exception for a note, and `first`: that with which it began.

    An exception is raised from another one, or while that one is handled, as a traceback shows it.
    Those without frames are left out: pools write the traceback of a worker into such a one.
    """
    found, first = _described(error), None
    is_from, step, left = True, error, _CHAIN
    while left:
        left -= 1
        before = _cause_of(step)
        if before is None and not _hides_context(step):
            before, is_from = context_of(step), False
        if before is None or before is error:
            break
        step = before
        if traceback_of(step) is not None:
            first = step, is_from
    if first is not None:
        found["first"] = {**_described(first[0]), "is_from": first[1]}
    return found


def _described(error: BaseException) -> dict[str, Any]:
    return {"type": type_of(error), "text": text_of(error), "frames": frames_of(error)}


def caller(depth: int = 0) -> FrameType | None:
    """The frame from which the function was called that calls this; `None` if that is refused.

    Args:
        depth: So many frames further out.
    """
    try:
        return sys._getframe(depth + 2)
    except BaseException as error:
        if not is_ours(error):  # an audit hook refuses it, or there are not so many
            raise
        return None


def frames_here(skip: int, limit: int = 16) -> list[list[Any]]:
    """Function, file and line of the calling thread's frames, innermost first.

    There are none where an audit hook refuses to have them read.

    Args:
        skip: Frames to leave out, counted from the caller of this function.
        limit: Frames kept at most.
    """
    frames, _ = asked(_frames_from, caller(), skip, limit)
    return frames or []


def _frames_from(step: Any, skip: int, limit: int) -> list[list[Any]]:
    frames: list[list[Any]] = []
    while step is not None and skip > 0:
        step, skip = step.f_back, skip - 1
    while step is not None and len(frames) < limit:
        code = step.f_code
        if not code.co_filename.startswith(_OWN):
            frames.append([code.co_name, code.co_filename, step.f_lineno])
        step = step.f_back
    return frames


def type_of(error: BaseException) -> str:
    """The name of an exception's class, also of one whose metaclass is the program's."""
    return _class_name(type(error))


def text_of(error: BaseException, limit: int = 1000) -> str:
    """The message of an exception, bounded, without running the program's code.

    A `__str__` that is written in Python belongs to the program or a library, and the arguments of
    an exception may be any object. So only the `__str__` of built-in exceptions is called, and only
    if all arguments are plain values. Otherwise the arguments are joined.
    """
    arguments = _arguments(error)
    show = exact.in_class(error, "__str__")
    shown = arguments
    if exact.is_a(error, OSError):
        shown += (_file_name(error),)  # any object that the program used as a path
    if type(show) is _WRITTEN_IN_C and all(exact.is_atom(each) for each in shown):
        try:
            return str(show(error))[:limit]
        except Exception as failure:
            # Some exceptions also show attributes, which the program may have set to any value.
            if signal_behind(failure) is not None:
                raise
    return ", ".join(exact.text(each) for each in arguments)[:limit]


def _code_of(handler: Any) -> CodeType | None:
    """The code that a signal handler runs: a function's, a method's, or a callable object's."""
    code: CodeType | None = exact.code_of(handler)
    return code
