"""What happens around `os.fork`: the thread ends before it and starts again after it.

The functions given to `os.register_at_fork` cannot be taken back, so they ask each time whether a
hook is in. An exception in one of them would be printed and lost by the interpreter, also one that
a signal handler of the program raised; such a signal is delivered again once the fork is over.
"""

from __future__ import annotations

import os

from . import errors, places, wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .session import Session


class Forks:
    """The forks under way in this process; they may come from several threads at once."""

    __slots__ = ("_began_ns", "_census", "_place", "_signals", "_under_way", "session", "threads")

    def __init__(self) -> None:
        self.session: Session | None = None
        self._under_way: dict[int, bool] = {}
        self._place: tuple[Any, int] | None = None
        self._signals: list[int] = []
        self._began_ns = 0
        self._census: Callable[[int | None], None] | None = None
        self.threads: int | None = None

    def register(self) -> None:
        """Hand the three functions to the interpreter, for good."""
        os.register_at_fork(
            before=lambda: self._guard(self._before),
            after_in_parent=lambda: self._guard(self._after_in_parent),
            after_in_child=lambda: self._guard(self._after_in_child),
        )

    def on_census(self, census: Callable[[int | None], None] | None) -> None:
        """Have a function called before each fork, with the number of threads."""
        self._census = census

    def _guard(self, step: Callable[[Session], None]) -> None:
        session = self.session
        if session is None or session.state == "off":
            return
        try:
            step(session)
        except BaseException as error:
            number = errors.signal_behind(error)
            if number is None:
                session.problems.append(f"fork: {type(error).__name__}: {error}"[:200])
                return
            self._signals.append(number)
            self._retry(step, session)

    def _retry(self, step: Callable[[Session], None], session: Session) -> None:
        """Finish a step that a signal handler's exception cut short: each can be repeated."""
        try:
            step(session)
        except BaseException as error:
            number = errors.signal_behind(error)
            if number is not None:
                self._signals.append(number)

    def _before(self, session: Session) -> None:
        self._under_way[session.system.get_ident()] = True
        self._began_ns = session.system.monotonic_ns()
        session.server.stop()
        self.threads = places.thread_count(session.system)
        if self._census is not None:
            self._census(self.threads)
        if self._place is None:
            self._place = session.ring.step_aside()

    def _after_in_parent(self, session: Session) -> None:
        self._under_way.pop(session.system.get_ident(), None)
        if self._under_way:
            return
        if self._place is not None:
            place, self._place = self._place, None
            session.ring.step_back(*place)
        if session.state == "on":
            session.record(wire.FORKED, self._began_ns, aux=self.threads or 0)
            session.server.start()
        if self._under_way:
            # Another thread began to fork in between and has not seen our thread.
            session.server.stop()
        while self._signals:
            self._deliver_again(session, self._signals.pop())

    def _after_in_child(self, session: Session) -> None:
        self._under_way = {}
        self._place = None
        self._signals = []
        session.reset_in_child()

    def _deliver_again(self, session: Session, number: int) -> None:
        """Let a signal's handler run again, after the functions around the fork have returned."""
        system = session.system

        def deliver() -> None:
            system.sleep(0.002)
            system.interrupt_main(number)

        system.start_new_thread(deliver, ())
