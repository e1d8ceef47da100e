from __future__ import annotations

import signal
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
