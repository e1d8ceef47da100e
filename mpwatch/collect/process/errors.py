"""Why a process cannot be watched: one sentence each, what helps, and the exit code for it."""

from __future__ import annotations


class CannotWatch(Exception):
    """A process that was named cannot be watched.

    Attributes:
        fix: A command that helps, or an empty string.
        exit_code: What the command line ends with.
    """

    exit_code = 1

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.fix = fix

    @property
    def message(self) -> str:
        """The sentence to show."""
        return str(self)


class NoSuchProcess(CannotWatch):
    """No process has this number."""

    exit_code = 3

    def __init__(self, pid: int, elsewhere: str = "") -> None:
        """Name what would show processes that are out of sight, where there may be some."""
        fix = f"mpwatch ps; or {elsewhere}" if elsewhere else "mpwatch ps"
        super().__init__(f"There is no process {pid}.", fix)
        self.pid = pid


class IsZombie(CannotWatch):
    """The process has ended; its parent has not collected it yet."""

    exit_code = 3

    def __init__(self, pid: int, parent_pid: int) -> None:
        super().__init__(
            f"Process {pid} has ended and waits to be collected by its parent {parent_pid}.",
            f"mpwatch attach {parent_pid}" if parent_pid > 1 else "mpwatch ps",
        )
        self.pid = pid
        self.parent_pid = parent_pid


class IsThread(CannotWatch):
    """The number is that of a thread other than the main thread."""

    exit_code = 3

    def __init__(self, tid: int, pid: int) -> None:
        super().__init__(f"{tid} is a thread of process {pid}.", f"mpwatch attach {pid}")
        self.tid = tid
        self.pid = pid


class NotPermitted(CannotWatch):
    """The process belongs to somebody else, or the system forbids looking into it."""

    exit_code = 4

    def __init__(self, pid: int, reason: str, fix: str = "") -> None:
        super().__init__(f"Process {pid} may not be looked into: {reason}.", fix)
        self.pid = pid


class NotPython(CannotWatch):
    """The process runs something else than CPython."""

    exit_code = 5

    def __init__(self, pid: int, exe: str) -> None:
        super().__init__(f"Process {pid} runs {exe}, not Python.", "mpwatch ps")
        self.pid = pid
        self.exe = exe


class IsObserver(CannotWatch):
    """The process is mpwatch itself: watching it would watch the watching."""

    exit_code = 2

    def __init__(self, pid: int) -> None:
        super().__init__(f"Process {pid} is mpwatch itself.", "mpwatch ps")
        self.pid = pid
