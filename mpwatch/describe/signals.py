"""What it means that a process ended by a signal: who sends it, and what to do.

Signals whose default action ends a process, by signal(7) of Linux man-pages 6.9. Crashes and the
signals that ask for an end (SIGTERM, SIGINT, SIGHUP, SIGQUIT) are explained elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from signal import Signals
from typing import NamedTuple


class Meaning(NamedTuple):
    """Cause and fix of an exit by a signal."""

    cause: str
    advice: str


def meaning(signal: int) -> Meaning:
    """The usual reason why a process ends by a signal.

    Args:
        signal: Its number.
    """
    return _MEANINGS.get(signal, _OTHER)


_TIMER = Meaning(
    "A timer that the process had set itself ran out (signal.alarm, signal.setitimer, or a library "
    "for timeouts and profiling), and no handler was installed for its signal at that moment.",
    "Install the handler before the timer is set, and cancel the timer when the guarded call ends. "
    "A timer survives exec but no fork; handlers survive a fork but no exec or spawn.",
)
_BY_THE_USER = Meaning(
    "Another process sent it: schedulers and launchers use it to announce the end of a job's "
    "time or to ask for a checkpoint, and send it to every process of the job. It ends each "
    "process that has no handler for it; handlers are not passed to spawned processes.",
    "Install a handler in this process too, or ignore the signal (signal.SIG_IGN) at the start of "
    "its target; have the scheduler signal only the process that handles it.",
)
CPU_LIMIT = Meaning(
    "It had used all the cpu time it may use: at the hard limit (RLIMIT_CPU) the kernel sends "
    "SIGKILL, which cannot be caught. All threads of the process count, and a limit that code sets "
    "(resource.setrlimit) is valid for the whole process and for the children it starts later.",
    "Find the setrlimit call or the limit of the shell or scheduler (ulimit -t, LimitCPU) and "
    "raise it; set it only in the process that it is meant for.",
)
"""Of a process that got SIGKILL with its cpu time used up."""
_MEANINGS: Mapping[int, Meaning] = {
    Signals.SIGKILL: Meaning(
        "It got SIGKILL from a user, a scheduler, its parent after a timeout, or the kernel's "
        "out-of-memory killer. The memory figures here do not point to the last.",
        "Search the kernel log (dmesg) for 'Out of memory', and the scheduler's log. Stop workers "
        "with SIGTERM, so that they release their locks and memory.",
    ),
    Signals.SIGALRM: _TIMER,
    Signals.SIGVTALRM: _TIMER,
    Signals.SIGPROF: _TIMER,
    Signals.SIGUSR1: _BY_THE_USER,
    Signals.SIGUSR2: _BY_THE_USER,
    Signals.SIGXCPU: Meaning(
        "It used up its cpu time: the kernel sends SIGXCPU at the soft limit (RLIMIT_CPU).",
        "Raise the limit (ulimit -t, or LimitCPU of systemd) for this process, or remove the code "
        "that sets it (resource.setrlimit).",
    ),
    Signals.SIGXFSZ: Meaning(
        "It wrote a file past its limit of file size (RLIMIT_FSIZE) and had the default action for "
        "SIGXFSZ, which Python otherwise ignores.",
        "Raise the limit (ulimit -f), or write smaller files.",
    ),
    Signals.SIGPIPE: Meaning(
        "It wrote to a pipe or socket whose reader was gone, and had the default action for "
        "SIGPIPE, which Python otherwise ignores.",
        "Find out why the reader ended. Remove signal.signal(SIGPIPE, SIG_DFL) where the process "
        "should get a BrokenPipeError instead.",
    ),
    Signals.SIGSYS: Meaning(
        "A seccomp filter forbade a system call: a sandbox or a container's security profile.",
        "Look for the system call in the kernel's audit log (dmesg, type=1326) and allow it in the "
        "profile.",
    ),
    Signals.SIGTRAP: Meaning(
        "It reached a breakpoint instruction: native code that checks itself, or a debugger that "
        "left one behind.",
        "Set PYTHONFAULTHANDLER=1 to get the Python line on standard error.",
    ),
}
_OTHER = Meaning(
    "Another process or the kernel sent a signal for which the process has no handler.",
    "Find out who sends it (strace -f -e trace=none -e signal=all -p PID shows the sender), and "
    "install a handler or ignore it.",
)
