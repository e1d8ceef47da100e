"""The target process of a command, and the hooks that the command injects into the job."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from mpwatch.cli.failures import EXIT_NO_SUCH_PROCESS, Failure
from mpwatch.collect.process.identify import CannotWatch, identify
from mpwatch.model.events import HookStatus
from mpwatch.model.ids import ProcessId
from mpwatch.model.injection import InjectionPlan
from mpwatch.model.samples import ProcSample
from mpwatch.observe.sources.attach_schedule import Inject
from mpwatch.observe.sources.collectors import HookUse

if TYPE_CHECKING:
    from mpwatch.attach.attach_session import AttachSession

_ENDING = (signal.SIGTERM, signal.SIGHUP)


def target(pid: int, *, may_be_hidden: bool = False) -> ProcessId:
    """The process with this pid.

    Args:
        pid: The pid.
        may_be_hidden: Whether to accept a process whose private procfs files are not readable.

    Raises:
        Failure: The process cannot be watched; with reason, helpful command and exit code.
    """
    try:
        return identify(pid, may_be_hidden=may_be_hidden)
    except CannotWatch as error:
        raise Failure(error.message, error.fix, error.exit_code) from None


def tell_part(process: ProcessId, command: str) -> None:
    """Say on standard error if a process is only a part of a job, and the command for all of it."""
    from mpwatch.collect.job.jobs import part_of_job
    from mpwatch.describe.processes import part_sentence

    part = part_of_job(process)
    if part is not None:
        sentence = part_sentence(process.pid, part, command)
        print(f"mpwatch: {sentence}", file=sys.stderr, flush=True)


def of_job(arguments: argparse.Namespace, subject: object, command: str, name: str = "PID") -> bool:
    """Whether a command is about a job on several machines.

    Args:
        arguments: Of the command.
        subject: What the command is about otherwise.
        command: Its name.
        name: What the subject is called.

    Raises:
        Failure: Both or neither of `--job` and a subject are given.
    """
    if (arguments.job is None) == (subject is None):
        sentence = f"mpwatch {command} needs one of {name} and --job SPEC."
        raise Failure(sentence, f"mpwatch {command} --help")
    if arguments.job is not None and arguments.hook:
        sentence = "Nothing is injected on other machines."
        raise Failure(sentence, f"mpwatch {command} --job {shlex.quote(arguments.job)}")
    return arguments.job is not None


def ended_meanwhile(pid: int) -> Failure:
    """The failure for a process that exited before it was read."""
    return Failure(
        f"Process {pid} ended before it could be read.", "mpwatch ps", EXIT_NO_SUCH_PROCESS
    )


def hook_use(arguments: argparse.Namespace) -> HookUse:
    """The hook mode chosen by `--hook` and `--no-hook` of a command without a dashboard.

    The same option of attach only answers the question whether to inject.
    """
    if arguments.no_hook:
        return "ignore"
    return "inject" if arguments.hook else "use"


@contextlib.contextmanager
def injecting(process: ProcessId, arguments: argparse.Namespace) -> Iterator[Inject | None]:
    """Provide the injecting function for a command without a dashboard, if `--hook` was given.

    The hooks are detached when the command ends, unless `--keep` was given. Inside the context
    SIGTERM and SIGHUP end the command like Ctrl-C.
    """
    if hook_use(arguments) != "inject":
        yield None
        return
    from mpwatch.attach.attach_session import AttachSession

    session = AttachSession(process, keeps=arguments.keep)
    with exiting_on_signals():
        try:
            yield session.inject
        finally:
            end_session(session)


@contextlib.contextmanager
def exiting_on_signals() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise `SystemExit` with 128 + n, so that `finally` blocks run."""
    before = {number: signal.signal(number, _exit) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class LazySession:
    """An `AttachSession` that is created on first use.

    Importing its modules takes 50 ms, which must not delay the first screen.
    """

    def __init__(self, root: ProcessId, *, only: Collection[int], keeps: bool) -> None:
        self._root = root
        self._only = only
        self._keeps = keeps
        self._lock = threading.Lock()
        self._session: AttachSession | None = None
        self._is_over = False

    def plan(self, samples: Iterable[ProcSample]) -> InjectionPlan:
        """See `AttachSession.plan`."""
        session = self._made()
        return InjectionPlan((), ()) if session is None else session.plan(samples)

    def inject(
        self,
        samples: Sequence[ProcSample],
        report: Callable[[HookStatus], None],
        *,
        again: bool = False,
    ) -> None:
        """See `AttachSession.inject`."""
        session = self._made()
        if session is not None:
            session.inject(samples, report, again=again)

    def detach(self, samples: Sequence[ProcSample]) -> str:
        """Detach every hook of these processes, see `attach.process_actions.detach_hooks`.

        An injection of this session that is under way goes on into no further process.
        """
        from mpwatch.attach.process_actions import detach_hooks

        session = self._made()
        with contextlib.nullcontext() if session is None else session.called_off():
            return detach_hooks(samples)

    def end(self) -> None:
        """Detach the injected hooks and report that; later calls of all methods do nothing."""
        with self._lock:
            self._is_over = True
            session, self._session = self._session, None
        if session is not None:
            end_session(session)

    def _made(self) -> AttachSession | None:
        with self._lock:
            if self._session is None and not self._is_over:
                from mpwatch.attach.attach_session import AttachSession

                self._session = AttachSession(self._root, only=self._only, keeps=self._keeps)
            return self._session


def end_session(session: AttachSession) -> None:
    """Detach the injected hooks, and report that on standard error in one line.

    No signal but SIGKILL interrupts this. It takes a second for most jobs; its time is bounded.
    """
    with _undisturbed():
        sentence = session.end()
    # Standard error may be a terminal that is gone.
    with contextlib.suppress(OSError):
        if sentence:
            print(f"mpwatch: {sentence}", file=sys.stderr, flush=True)
        if session.log.problem is not None:
            problem = f"the log of injections is not complete: {session.log.problem}"
            print(f"mpwatch: {problem}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Have signals that would end mpwatch do nothing; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (*_ENDING, signal.SIGINT)
    before = {number: signal.signal(number, ignore_signal) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore_signal(_number: int, _frame: FrameType | None) -> None:
    """Ignore a signal. A handler, because child processes would inherit SIG_IGN."""


def _exit(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
