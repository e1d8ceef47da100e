"""What happens around `os.fork`: the thread ends before it and starts again after it.

The functions given to `os.register_at_fork` cannot be taken back, so they ask each time whether a
hook is in. An exception in one of them would be printed and lost by the interpreter, also one that
a signal handler of the program raised; such a signal's handler runs again once the fork is over.

Python 3.12 and later warn when a process of several threads forks, and some of them count the
threads only after these functions have run, as the last step of a fork (`counts_late`). There the
thread of a process that has no other starts again as `os.fork` returns (`wrap_fork`), or with the
next record where the program kept the original `os.fork` from before the hook was attached. The
replacement has no frame of its own, so warnings and tracebacks still point to the program's line.

`unshare(CLONE_NEWUSER)` and `setns` to a user namespace fail with EINVAL in a process of several
threads (unshare(2), setns(2)). So the hook's thread ends before `os.unshare` and `os.setns`, which
Python has since 3.12, and starts again after them. Calls of the C library by ctypes or from an
extension cannot be seen: they fail while the hook is attached, also in forked children, whose
thread starts with their first record.

The thread ends before `os.closerange`, too. A daemon closes all descriptors by it, and then opens
its own files under the same numbers. Whether a descriptor is still the hook's can be checked, but
between the check and the write or the `close` that follows, the program may reuse the number.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _thread
import functools
import itertools
import operator
import posix
import sys

from .. import checks, wire
from ..safe import foreign_exceptions
from ..transport import runtime_dir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Protocol

    from ..context import Context
    from ..transport.process_files import Files
    from ..transport.ring import Ring

    class Forking(Context, Protocol):
        """The hook of a process that forks."""

        ring: Ring
        files: Files

        def reset_in_child(self) -> None:
            """Make this the hook of a forked child."""


_FORKING_THREADS = 2
_SPARE = 8
"""How many more threads may begin to fork before the first of them adds to their number."""
_SPARE_IN_CHILD = 2
"""A forked child has one thread; a signal handler of it may fork again during the step."""
_SIGNALS = 3
"""Different signals that may strike during one fork."""


def counts_late(version: tuple[int, ...]) -> bool:
    """Whether this Python counts threads for its warning after the functions for the parent.

    python/cpython#116607 moved the count behind them, #141438 before them again, in 3.14.1 and in
    late patches of 3.13. Those count as late here too: waiting for a record does no harm.
    """
    return (3, 12) <= version < (3, 14, 1)


class ForkSteps:
    """The forks under way in this process; they may come from several threads at once.

    Other calls during which the hook has no thread count as well, see `wrap_single_threaded`.
    """

    __slots__ = (
        "_began_ns",
        "_counts_late",
        "_errno",
        "_place",
        "_risks",
        "_signals",
        "_under_way",
        "session",
        "threads",
    )

    def __init__(self, version: tuple[int, ...] = sys.version_info[:3]) -> None:
        self._counts_late = counts_late(version)
        self._errno = checks.load("errno_location").find() if version < (3, 11) else None
        self.session: Forking | None = None
        self._under_way: dict[int, bool] = {}
        self._place: tuple[Any, int] | None = None
        self._signals: dict[int, int] = {}
        self._began_ns = 0
        self._risks: set[int] = set()
        """Hashes of the risks that were noted."""
        self.threads: int | None = None

    def register(self) -> None:
        """Hand the three functions to the interpreter, for good.

        That of `os` may be a replacement that would release them.
        """
        posix.register_at_fork(
            before=shielded(self.before, self),
            after_in_parent=shielded(self.after_in_parent, self),
            after_in_child=shielded(self.after_in_child, self, 1, _SPARE_IN_CHILD),
        )
        for slot in range(_SIGNALS):
            posix.register_at_fork(after_in_parent=self._deliver_again(slot))

    def caught(self, step: Callable[[Forking], None], error: BaseException) -> None:
        """Deal with an exception in one of the three: finish the step, remember the signal."""
        session = self.session
        if session is None:
            return
        # A second signal may have struck before the first was remembered.
        struck = [
            number for each in _chain(error) if (number := foreign_exceptions.signal_behind(each))
        ]
        for number in struck:
            if number not in self._signals.values():
                slot = next((slot for slot in range(_SIGNALS) if slot not in self._signals), 0)
                self._signals[slot] = number
        if struck:
            step(session)
        else:
            session.problems.append(f"fork: {type(error).__name__}: {error}"[:200])

    def _deliver_again(self, slot: int) -> Callable[[], Any]:
        """Make a function that runs after all others and lets a caught signal's handler run again.

        It is C throughout: the handler then runs where it would have run without the hook, as
        `os.fork` returns. With nothing caught it simulates SIGKILL, which does nothing, for that
        has no handler.
        """
        take = functools.partial(self._signals.pop, slot, int(_signal.SIGKILL))
        simulate: Any = _thread.interrupt_main
        return functools.partial(next, map(simulate, iter(take, None)))

    def before(self, session: Forking) -> None:
        """In the parent, before a fork."""
        self._under_way[session.system.get_ident()] = True
        self._began_ns = session.system.monotonic_ns()
        session.server.stop_for_fork()
        self.threads = runtime_dir.thread_count(session.system)
        self._note_risks(session)
        if self._place is None:
            self._place = session.ring.step_aside()

    def _note_risks(self, session: Forking) -> None:
        """Note what a child cannot use, if this thread is not all that there is; never raises."""
        has_cuda = getattr(sys.modules.get("torch.cuda"), "_initialized", False)
        if (self.threads or 1) <= 1 and not has_cuda:
            return
        try:
            checks.load("fork_risks").note_risks(session, self.threads, self._risks)
        except BaseException as error:
            # The fork has more important steps to come.
            if not foreign_exceptions.is_ours(error):
                raise
            session.problems.append(f"fork risks: {type(error).__name__}: {error}"[:200])

    def after_in_parent(self, session: Forking) -> None:
        """Start the thread again; also called where the fork failed.

        Python 3.10 (`os_fork_impl`) makes its exception of what `errno` is after this.
        """
        if self._errno is None:
            self._bring_back(session)
            return
        kept = self._errno().contents.value
        try:
            self._bring_back(session)
        finally:
            self._errno().contents.value = kept

    def _bring_back(self, session: Forking) -> None:
        if not self._is_last(session):
            return
        if session.state == "on":
            # A step that was struck is taken again, and the fork still being counted.
            session.server.let_no_record_start_it()
            session.record(wire.FORKED, self._began_ns, aux=self.threads or 0)
            session.files.sweeper.count_fork()
            if self._counts_late and self.threads == 1:
                session.server.start_with_next_record()
            else:
                session.server.start()
        self._stop_for_others(session)

    def begin_call(self, session: Forking) -> None:
        """Before a call during which the hook has no thread."""
        self._under_way[session.system.get_ident()] = True
        session.server.stop_for_fork()

    def end_call(self, session: Forking) -> None:
        """After it, whatever has become of it; may be repeated."""
        if not self._is_last(session):
            return
        if session.state == "on":
            session.server.start()
        self._stop_for_others(session)

    def _is_last(self, session: Forking) -> bool:
        """Note the end of what this thread has begun; whether that was the last under way."""
        self._under_way.pop(session.system.get_ident(), None)
        if self._under_way:
            return False
        if self._place is not None:
            place, self._place = self._place, None
            session.ring.step_back(*place)
        return True

    def _stop_for_others(self, session: Forking) -> None:
        """End the thread again for one that began in between and has not seen it."""
        if self._under_way:
            session.server.stop()

    def after_in_child(self, session: Forking) -> None:
        """In the child, after a fork."""
        self._under_way = {}
        self._place = None
        self._signals.clear()
        self._risks = set()
        session.reset_in_child()


def _chain(error: BaseException) -> list[BaseException]:
    """An exception and those during whose handling it came, oldest first."""
    chain = [error]
    while len(chain) < _SIGNALS and (before := chain[0].__context__) is not None:
        chain.insert(0, before)
    return chain


def shielded(
    step: Callable[[Forking], None],
    forks: ForkSteps,
    threads: int = _FORKING_THREADS,
    spare: int = _SPARE,
) -> Callable[[], Any]:
    """Make a function for `os.register_at_fork` that cannot be struck before its first `try`.

    A signal that arrived during the fork has its handler run as the next Python function is
    entered, before any `try` in it. So nothing is entered here: a generator that already waits
    inside its `try` goes on from there, and all that leads to it is written in C. A generator that
    runs cannot be resumed, so there is one for each thread that may be forking at a time.

    There are `threads` of them and `spare` ones, for threads that call before more are made.
    """
    free: dict[int, Any] = {}
    all_of_them: dict[int, Any] = {}
    numbers = itertools.count()

    def body(number: int) -> Iterator[None]:
        while True:
            # Thrice, for a handler may also strike in the `except` clause, or as the loop turns.
            try:
                while True:
                    try:
                        while True:
                            try:
                                session = None
                                # No other thread can run between these two: neither is a call.
                                free[number] = all_of_them[number]
                                yield
                                session = forks.session
                                if session is not None and session.state != "off":
                                    if len(free) < spare:
                                        grow(spare)
                                    step(session)
                            except GeneratorExit as error:
                                if number in free:
                                    return  # nobody can call it any more
                                forks.caught(step, error)
                            except BaseException as error:  # noqa: BLE001 - would be printed
                                forks.caught(step, error)
                    except BaseException as error:  # noqa: BLE001 - as above
                        forks.caught(step, error)
            except BaseException as error:  # noqa: BLE001 - as above
                forks.caught(step, error)

    def grow(count: int) -> None:
        """Have more of them: as many threads fork at once, or others were lost in a fork."""
        for _ in range(count):
            number = next(numbers)
            all_of_them[number] = body(number)
            next(all_of_them[number])

    grow(threads + spare)
    taken = map(operator.itemgetter(1), iter(free.popitem, None))
    return functools.partial(next, map(next, taken))


def wrap_fork(original: Callable[[], Any], session: Context) -> Callable[[], Any]:
    """Start the hook's thread again once the original has returned in the parent."""

    def returned(result: Any) -> Any:
        # In the child this does nothing: there the hook starts with the first record.
        session.server.resume()
        return result

    # The iterator calls the original once for each `next`, without end: it never returns None.
    return functools.partial(next, map(returned, iter(original, None)))


def wrap_single_threaded(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """End the hook's thread for the time of one call, with all descriptors that it has opened."""

    def single_threaded(*args: Any, **kwargs: Any) -> Any:
        try:
            _take_step(session.forks.begin_call, session)
            return original(*args, **kwargs)
        except BaseException as error:
            foreign_exceptions.unframe(error)
            raise
        finally:
            try:
                _take_step(session.forks.end_call, session)
            except BaseException:
                # Of a signal handler, which may have struck before the first line of the step.
                _take_step(session.forks.end_call, session)
                raise

    return single_threaded


def _take_step(step: Callable[[Any], None], session: Context) -> None:
    """Take a step of the hook's own; only what a signal handler raises leaves it."""
    try:
        step(session)
    except BaseException as error:
        if not foreign_exceptions.is_ours(error):
            raise
        session.problems.append(f"{type(error).__name__}: {error}"[:200])


SINGLE_THREADED = tuple(name for name in ("closerange", "unshare", "setns") if hasattr(posix, name))
"""Functions of `os` during which the hook has no thread. The kernel may refuse the last two to a
process of several threads; Python has them since 3.12."""
FORKS = ("fork", "forkpty") if counts_late(sys.version_info[:3]) else ()
"""Functions of `os` after which the hook's thread has to be started by a wrapper."""
