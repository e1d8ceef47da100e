from __future__ import annotations

import ctypes
import functools
import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from mpwatch.hook.safe import foreign_exceptions

WITHOUT_WRAPPERS = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="tracebacks of Python 3.10 may show lines of wrappers"
)


class Handler:
    def __call__(self, number: int, frame: FrameType | None) -> None:
        raise RuntimeError("a worker died")


def plain(number: int, frame: FrameType | None) -> None:
    raise ValueError("from the handler")


@pytest.fixture(params=[plain, Handler(), Handler().__call__])
def handler(request: pytest.FixtureRequest) -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, request.param)
    yield
    signal.signal(signal.SIGUSR1, before)


def caught(raise_it: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as info:  # noqa: PT011 - any at all
        raise_it()
    return info.value


def test_an_exception_of_a_signal_handler_is_foreign(handler: None) -> None:
    error = caught(lambda: signal.raise_signal(signal.SIGUSR1))

    assert foreign_exceptions.signal_behind(error) == signal.SIGUSR1
    assert not foreign_exceptions.is_ours(error)


def any_number(*arguments: object) -> None:
    raise ValueError(arguments[0])


@pytest.mark.parametrize("shared", [plain, Handler(), Handler().__call__, any_number])
def test_a_handler_of_several_signals_is_named_with_its_signal(
    shared: Callable[[int, FrameType | None], None],
) -> None:
    numbers = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)
    before = {number: signal.signal(number, shared) for number in numbers}
    try:
        errors_seen = [caught(lambda n=n: signal.raise_signal(n)) for n in numbers]  # type: ignore[misc]
        assert [foreign_exceptions.signal_behind(each) for each in errors_seen] == list(numbers)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_an_error_of_the_hook_is_not_foreign() -> None:
    assert foreign_exceptions.is_ours(caught(lambda: dict[str, int]()["key"]))


def test_an_exception_injected_from_outside_is_foreign() -> None:
    class Cancelled(Exception):
        pass

    assert not foreign_exceptions.is_ours(Cancelled())
    assert not foreign_exceptions.is_ours(KeyboardInterrupt())


class Refused(BaseException):
    pass


def refuses(event: str, arguments: tuple[object, ...]) -> None:
    raise Refused(event)


def refuses_any(*arguments: object) -> None:
    raise Refused


def traces(frame: FrameType, event: str, argument: object) -> None:
    raise Refused(event)


def run_by_the_hook(call: Callable[[], object]) -> BaseException:
    """What a call raises in a function that is the hook's, as far as its file tells."""
    path = f"{os.path.dirname(os.path.dirname(foreign_exceptions.__file__))}/test.py"
    names: dict[str, Callable[[Callable[[], object]], object]] = {}
    exec(compile("def run(call): return call()", path, "exec"), None, names)
    with pytest.raises(BaseException) as info:  # noqa: PT011 - any at all
        names["run"](call)
    return info.value


@pytest.mark.parametrize("refuse", [refuses, refuses_any])
def test_what_an_audit_hook_refuses_to_the_hook_is_not_foreign(
    refuse: Callable[..., object],
) -> None:
    here = sys._getframe()
    for event in ("open", ("/", None, 0)), ("sys._getframe", (here,)):
        assert foreign_exceptions.is_ours(run_by_the_hook(functools.partial(refuse, *event)))
    # Outside of the hook's code it is the program's.
    with pytest.raises(Refused) as info:
        refuse("open", ())
    assert not foreign_exceptions.is_ours(info.value)


def passes_on(event: str, arguments: tuple[object, ...]) -> None:
    looks_at(*arguments)


def looks_at(frame: object) -> None:
    raise Refused


def test_what_an_audit_hook_refuses_after_a_look_at_a_frame_is_not_foreign() -> None:
    event = functools.partial(passes_on, "sys._getframe", (sys._getframe(),))
    assert foreign_exceptions.is_ours(run_by_the_hook(event))


class Cancelled(Exception):
    def __init__(self) -> None:
        super().__init__("cancelled")


class Needing(Exception):
    def __init__(self, message: str) -> None:
        super().__init__()


class Naming(Exception):
    def __init__(self, message: str = "cancelled") -> None:
        super().__init__(message)


class Meta(type):
    def __call__(cls, *arguments: str) -> BaseException:
        made: BaseException = super().__call__(*arguments or ("cancelled",))
        return made


class MadeByMeta(Exception, metaclass=Meta):
    def __init__(self, message: str) -> None:
        super().__init__(message)


def test_an_exception_whose_class_needs_a_message_was_given_one_by_c_code() -> None:
    """`PyThreadState_SetAsyncExc` cannot make one; it can make those of the other classes."""
    api = ctypes.pythonapi
    refuse = functools.partial(api.PyErr_SetString, ctypes.py_object(Needing), b"no")
    assert foreign_exceptions.is_ours(run_by_the_hook(refuse))
    for kind in (Naming, MadeByMeta):
        interrupt = functools.partial(api.PyErr_SetNone, ctypes.py_object(kind))
        assert not foreign_exceptions.is_ours(run_by_the_hook(interrupt))


def test_an_exception_without_a_frame_is_an_audit_hooks_if_c_code_has_given_it_a_message() -> None:
    """`PyThreadState_SetAsyncExc` gives none; a class may do that by itself."""
    api = ctypes.pythonapi
    kind: type[BaseException]
    for kind in (Refused, KeyboardInterrupt, SystemExit):
        refuse = functools.partial(api.PyErr_SetString, ctypes.py_object(kind), b"no")
        assert foreign_exceptions.is_ours(run_by_the_hook(refuse))
    for kind in (Refused, KeyboardInterrupt, SystemExit, Cancelled):
        interrupt = functools.partial(api.PyErr_SetNone, ctypes.py_object(kind))
        assert not foreign_exceptions.is_ours(run_by_the_hook(interrupt))


def interrupts(event: str, arguments: tuple[object, ...]) -> None:
    raise KeyboardInterrupt


def is_interrupted(event: str, arguments: tuple[object, ...]) -> None:
    signal.raise_signal(signal.SIGINT)


def test_an_audit_hook_may_refuse_by_an_interrupt_and_be_interrupted() -> None:
    refused = run_by_the_hook(functools.partial(interrupts, "open", ("/", None, 0)))
    assert foreign_exceptions.is_ours(refused)
    assert foreign_exceptions.signal_behind(refused) is None
    struck = run_by_the_hook(functools.partial(is_interrupted, "open", ("/", None, 0)))
    assert foreign_exceptions.signal_behind(struck) == signal.SIGINT


class Reader:
    """Refuses to have frames read, or is struck by a handler the first time."""

    def __init__(self, times: int, kind: type[BaseException]) -> None:
        self.times, self.kind = times, kind

    def __call__(self, error: BaseException) -> str:
        self.times -= 1
        if self.times >= 0:
            raise self.kind
        return "answer"


def test_what_is_refused_each_time_is_returned_and_what_strikes_once_is_raised() -> None:
    error = ValueError()
    assert foreign_exceptions.asked(Reader(0, Refused), error) == ("answer", None)
    answer, refusal = foreign_exceptions.asked(Reader(99, Refused), error)
    assert (answer, type(refusal)) == (None, Refused)
    with pytest.raises(Refused):
        foreign_exceptions.asked(Reader(1, Refused), error)
    with pytest.raises(KeyboardInterrupt):
        foreign_exceptions.asked(Reader(3, KeyboardInterrupt), error)


@pytest.mark.parametrize("trace", [traces, refuses_any])
def test_what_a_trace_function_raises_is_foreign(trace: Callable[..., object]) -> None:
    here = sys._getframe()
    for arguments in (here, "line", None), (here.f_code, 7):
        if len(arguments) == 3 or trace is refuses_any:
            error = run_by_the_hook(functools.partial(trace, *arguments))
            assert not foreign_exceptions.is_ours(error)


def test_what_a_handler_raises_in_a_call_of_the_hook_is_foreign() -> None:
    """Also one of a kind whose code is not known: it is called with a frame."""
    before = signal.signal(signal.SIGUSR1, functools.partial(refuses_any, 1))
    try:
        error = run_by_the_hook(lambda: signal.raise_signal(signal.SIGUSR1))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert type(error) is Refused
    assert not foreign_exceptions.is_ours(error)


def stops(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def test_an_interrupt_belongs_to_the_signal_whose_handler_raised_it_or_to_the_keyboard() -> None:
    before = signal.signal(signal.SIGUSR1, stops)
    try:
        with pytest.raises(KeyboardInterrupt) as info:
            signal.raise_signal(signal.SIGUSR1)
        assert foreign_exceptions.signal_behind(info.value) == signal.SIGUSR1
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert foreign_exceptions.signal_behind(KeyboardInterrupt()) == signal.SIGINT


class Told(Exception):
    """An exception with a `__str__` of the program."""

    calls = 0

    def __str__(self) -> str:
        Told.calls += 1
        raise KeyError("no")

    def __getattribute__(self, name: str) -> object:
        Told.calls += 1
        raise KeyError(name)


class Argument:
    def __str__(self) -> str:
        raise KeyError("no")

    __repr__ = __str__


class Word(str):
    def __str__(self) -> str:
        raise KeyError("no")

    __repr__ = __str__


def test_the_text_of_an_exception_is_read_without_the_programs_code() -> None:
    assert foreign_exceptions.text_of(Told("lost", 3)) == "lost, 3"
    assert foreign_exceptions.frames_of(Told()) == []
    assert not foreign_exceptions.is_ours(Told())
    assert Told.calls == 0

    assert foreign_exceptions.text_of(ValueError(Argument())) == "<Argument>"
    assert foreign_exceptions.text_of(ValueError(Word("said"))) == "said"
    assert foreign_exceptions.text_of(OSError(2, "gone", Argument())) == "2, gone"


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a", 1),
        KeyError("key"),
        OSError(2, "No such file", "/nowhere"),
        SyntaxError("bad", ("file.py", 1, 1, "x")),
        SystemExit(3),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"),
    ],
)
def test_a_built_in_exception_of_plain_values_has_the_text_that_python_shows(
    error: BaseException,
) -> None:
    assert foreign_exceptions.text_of(error)[:3] == str(error)[:3]


def innermost(number: int) -> None:
    try:
        raise KeyError(number)
    except KeyError as cause:
        raise ValueError("no such number") from cause


def original(number: int) -> None:
    if number:
        original(number - 1)
    innermost(number)


def wrapper(number: int) -> None:
    try:
        original(number)
    except BaseException as error:
        foreign_exceptions.unframe(error)
        raise


@WITHOUT_WRAPPERS
def test_an_exception_passes_wrappers_unchanged() -> None:
    bare, wrapped = caught(lambda: original(2)), caught(lambda: wrapper(2))

    assert (type(wrapped), str(wrapped)) == (type(bare), str(bare))
    assert repr(wrapped.__cause__) == repr(bare.__cause__) == "KeyError(0)"
    assert wrapped.__context__ is wrapped.__cause__
    assert wrapped.__suppress_context__ is bare.__suppress_context__
    lines = [(each.name, each.lineno) for each in traceback.extract_tb(wrapped.__traceback__)]
    assert (
        lines[2:]
        == [(each.name, each.lineno) for each in traceback.extract_tb(bare.__traceback__)][2:]
    )


def names_in(error: BaseException) -> list[str]:
    return [each.name for each in traceback.extract_tb(error.__traceback__)]


def asking() -> Iterator[BaseException | None]:
    """Call a wrapper three times, from a generator that handles an exception of its own."""
    try:
        raise LookupError("first")
    except LookupError as first:
        for _ in range(2):
            try:
                wrapper(0)
            except ValueError as error:
                yield error
        yield sys.exc_info()[1]
        yield first
    wrapper(0)


def before_the_cause(error: BaseException | None) -> BaseException | None:
    """The exception that was handled when the cause of an exception was raised."""
    assert error is not None
    assert error.__cause__ is not None
    return error.__cause__.__context__


@WITHOUT_WRAPPERS
def test_exceptions_handled_in_a_generator_and_in_its_caller_stay_separate() -> None:
    asked = asking()
    outer = OSError("outer")
    try:
        raise outer
    except OSError:
        first, second, handled, its_own = (next(asked) for _ in range(4))
        handled_here = sys.exc_info()[1]
        last = caught(lambda: next(asked))

    assert (handled, handled_here, sys.exc_info()[1]) == (its_own, outer, None)
    assert before_the_cause(first) is before_the_cause(second) is its_own
    assert before_the_cause(last) is outer
    assert isinstance(first, ValueError)
    assert isinstance(second, ValueError)
    assert names_in(first) == names_in(second) == ["asking", "original", "innermost"]
    assert names_in(last)[-3:] == ["asking", "original", "innermost"]


@WITHOUT_WRAPPERS
def test_the_traceback_of_a_call_with_wrong_arguments_ends_at_the_programs_line() -> None:
    error = caught(lambda: wrapper("ab"))  # type: ignore[arg-type]
    assert names_in(error)[-1] == "original"

    def misfit() -> None:
        try:
            original()  # type: ignore[call-arg]
        except BaseException as error:
            foreign_exceptions.unframe(error)
            raise

    assert names_in(caught(lambda: misfit()))[-1] == "<lambda>"


def test_exceptions_that_passed_leave_no_reference_behind() -> None:
    def references() -> tuple[int, ...]:
        error = caught(lambda: wrapper(1))
        return sys.getrefcount(error), sys.getrefcount(error.__traceback__)

    bare = caught(lambda: original(1))
    assert references() == (sys.getrefcount(bare), sys.getrefcount(bare.__traceback__))
    # Those that `pytest.raises` caught are cycles.
    gc.collect()
    before = sys.getrefcount(ValueError), sys.getrefcount(None)
    for _ in range(1000):
        caught(lambda: wrapper(1))
    gc.collect()
    after = sys.getrefcount(ValueError), sys.getrefcount(None)
    assert all(abs(new - old) < 500 for new, old in zip(after, before, strict=True))


def read_position(position: int) -> int:
    return [0, 1][position]


def fail_from() -> None:
    try:
        read_position(5)
    except IndexError as error:
        raise ValueError("no such position") from error


def fail_while_handling() -> None:
    try:
        fail_from()
    except ValueError:
        raise RuntimeError("gave up")  # noqa: B904 - the chain that is tested


def fail_hiding() -> None:
    try:
        read_position(5)
    except IndexError:
        raise ValueError("hidden") from None


def test_the_first_exception_of_a_chain_is_described() -> None:
    raised_from = foreign_exceptions.described(caught(fail_from))
    handled = foreign_exceptions.described(caught(fail_while_handling))

    assert (raised_from["type"], raised_from["text"]) == ("ValueError", "no such position")
    assert raised_from["first"]["type"] == "IndexError"
    assert raised_from["first"]["text"] == "list index out of range"
    assert raised_from["first"]["frames"][0][0] == "read_position"
    assert raised_from["first"]["is_from"]
    assert (handled["type"], handled["first"]["type"]) == ("RuntimeError", "IndexError")
    assert not handled["first"]["is_from"]


def test_an_exception_without_a_chain_or_that_hides_it_has_no_first_one() -> None:
    without_frames = ValueError("from the text of a worker")
    without_frames.__cause__ = RuntimeError("its traceback")

    assert "first" not in foreign_exceptions.described(caught(lambda: read_position(5)))
    assert "first" not in foreign_exceptions.described(caught(fail_hiding))
    assert "first" not in foreign_exceptions.described(without_frames)


def test_a_chain_that_is_a_circle_ends() -> None:
    error = caught(fail_from)
    assert error.__cause__ is not None
    error.__cause__.__cause__ = error

    assert foreign_exceptions.described(error)["first"]["type"] == "IndexError"
