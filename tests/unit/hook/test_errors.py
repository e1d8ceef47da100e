from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from mpwatch.hook import errors


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


def test_an_exception_of_a_signal_handler_is_not_ours(handler: None) -> None:
    error = caught(lambda: signal.raise_signal(signal.SIGUSR1))

    assert errors.signal_behind(error) == signal.SIGUSR1
    assert not errors.is_ours(error)


def any_number(*arguments: object) -> None:
    raise ValueError(arguments[0])


@pytest.mark.parametrize("shared", [plain, Handler(), Handler().__call__, any_number])
def test_one_handler_of_several_signals_is_asked_for_which_it_ran(
    shared: Callable[[int, FrameType | None], None],
) -> None:
    numbers = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)
    before = {number: signal.signal(number, shared) for number in numbers}
    try:
        errors_seen = [caught(lambda n=n: signal.raise_signal(n)) for n in numbers]  # type: ignore[misc]
        assert [errors.signal_behind(each) for each in errors_seen] == list(numbers)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_mistake_of_the_bookkeeping_is_ours() -> None:
    assert errors.is_ours(caught(lambda: dict[str, int]()["key"]))


def test_an_exception_injected_from_outside_is_not_ours() -> None:
    class Cancelled(Exception):
        pass

    assert not errors.is_ours(Cancelled())
    assert not errors.is_ours(KeyboardInterrupt())


def test_an_exception_that_cannot_be_shown_still_has_a_text() -> None:
    class Shy(Exception):
        def __str__(self) -> str:
            raise KeyError("no")

    assert errors.text_of(Shy()) == "<KeyError while reading the message>"


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
        errors.unframe(error)
        raise


def test_an_exception_passes_wrappers_with_all_that_it_had() -> None:
    """On Python 3.10 the line of a wrapper stays, as `unframe` says; nothing else may."""
    bare, wrapped = caught(lambda: original(2)), caught(lambda: wrapper(2))

    assert (type(wrapped), str(wrapped)) == (type(bare), str(bare))
    assert repr(wrapped.__cause__) == repr(bare.__cause__) == "KeyError(0)"
    assert wrapped.__context__ is wrapped.__cause__
    assert wrapped.__suppress_context__ is bare.__suppress_context__
    lines = [(each.name, each.lineno) for each in traceback.extract_tb(wrapped.__traceback__)]
    ours = [index for index, (name, _) in enumerate(lines) if name == "wrapper"]
    assert ours == ([2] if sys.version_info < (3, 11) else [])
    without = [line for line in lines if line[0] != "wrapper"]
    assert (
        without[2:]
        == [(each.name, each.lineno) for each in traceback.extract_tb(bare.__traceback__)][2:]
    )
