"""Processes in words: names (`worker 3`, `worker 3 (41829)`, `worker 0 of rank 3`) and states.

And what it means that one was ended by a signal: what sends it, and what to do. Signals whose
default action ends a process, by signal(7) of Linux man-pages 6.9. Crashes and the signals that ask
for an end (SIGTERM, SIGINT, SIGHUP, SIGQUIT) are explained elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Sized
from signal import Signals

from msgspec import Struct

from mpwatch.model.cmdline import job_program
from mpwatch.model.ids import ProcessId, Role
from mpwatch.model.samples import PartOfJob
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.units import DASH, seconds_text
from mpwatch.model.waits import WaitEdge

ROLE_PLURALS: Mapping[Role, str] = {
    "loader-worker": "workers",
    "rank": "ranks",
    "pool-worker": "pool workers",
    "spawned": "spawned",
    "ray-worker": "ray workers",
}
"""Roles of which a job has many processes with comparable work."""
STATE_WORDS: Mapping[str, str] = {
    "R": "running",
    "S": "sleeping",
    "D": "D sleep",
    "T": "stopped",
    "t": "traced",
    "Z": "zombie",
    "X": "dead",
    "x": "dead",
    "I": "idle",
}
"""By the letter in `/proc/PID/stat`, see proc_pid_stat(5); at most eight characters."""

_EXPLANATIONS: Mapping[str, str] = {
    "D": "in uninterruptible sleep (state D)",
    "T": "stopped by a signal",
    "t": "stopped by a tracer",
    "Z": "zombie: has exited, not reaped by its parent",
}
STATE_D = (
    "In state D a process handles no signal. SIGKILL ends the wait only where the kernel allows "
    "that (NFS, vfork and most reads of files do, many drivers do not)."
)
"""What signals do to it. Linux shows TASK_KILLABLE as D too (include/linux/sched.h): a signal that
kills ends such a wait, and one that does not kill is not even seen before the wait has ended."""
NAMES_SHOWN = 6
BUSY_PERCENT = 20.0
"""A sleeping process that used this much of a core since the last sample is running."""


_A_ROLE: Mapping[str, str] = {"spawned": "a spawned process", "other": "a process"}


def part_sentence(pid: int, part: PartOfJob, command: str = "diagnose") -> str:
    """That a process is only a part of a job, and the command for all of it."""
    is_numbered = any(map(str.isdigit, part.role))
    what = part.role if is_numbered else _A_ROLE.get(part.role, f"a {part.role}")
    root = part.root.pid
    return f"{pid} is {what} of the job of {root} ({part.name}): mpwatch {command} {root}"


def part_words(snapshot: Snapshot, command: str = "diagnose") -> str:
    """As `part_sentence`, and that the rest was not looked at; empty for a whole job."""
    part = snapshot.part_of
    if part is None:
        return ""
    return f"{part_sentence(snapshot.root.pid, part, command)}. The rest of it was not looked at."


UNSEEN_S = 2.0
"""What began within two readings from the first one may have begun before it."""


def lasting_text(seconds: float | None, snapshot: Snapshot, at_least: str = "at least ") -> str:
    """For how long something has lasted: `27 s`, or `at least 27 s`.

    It is the second where it was there at the first reading. A longer time than the job was watched
    has another source, such as a hook, which knows the beginning. `at_least` is for narrow columns.
    """
    account, text = snapshot.account, seconds_text(seconds)
    if seconds is None or not account.readings:
        return text
    before_s = snapshot.at_s - seconds - account.since_s
    return f"{at_least}{text}" if abs(before_s) <= UNSEEN_S else text


def program_of(snapshot: Snapshot) -> str:
    """The script that a job runs, else the label of its root process.

    Code that is given to Python, as multiprocessing does it, says nothing of a process: its label
    is what it was given.
    """
    root = snapshot.get(snapshot.root)
    if root is None:
        return "job"
    program = job_program(root.sample.cmdline)
    return program.name if program.kind != "code" and program.name else root.label


def role_name(role: Role, worker_id: int | None, rank: int | None) -> str:
    """The role with its number, if it has one: `worker 3`, `rank 1`, `main`.

    A `main` with a number is a rank that no launcher has started.
    """
    if role == "loader-worker" and worker_id is not None:
        return f"worker {worker_id}"
    if role in ("rank", "main") and rank is not None:
        return f"rank {rank}"
    return role


def names_text(names: Iterable[str], limit: int = NAMES_SHOWN) -> str:
    """The first names in one line: `node-1, node-2 and 3 more`."""
    found = list(names)
    more = len(found) - limit
    return ", ".join(found[:limit]) + (f" and {more} more" if more > 0 else "")


def full_name(process: Process) -> str:
    """Label and pid: `worker 3 (41829)`."""
    return f"{process.label} ({process.pid})"


def full_name_of(process: ProcessId | None, snapshot: Snapshot) -> str:
    """Label and pid: `worker 3 (41829)`; `pid N` for a process that the snapshot does not have."""
    if process is None:
        return DASH
    known = snapshot.get(process)
    return full_name(known) if known is not None else f"pid {process.pid}"


def unique_names(snapshot: Snapshot) -> dict[ProcessId, str]:
    """A name for each process that no other process has.

    Each rank has a worker 0, hence `worker 0 of rank 3`. A second `spawned` gets its pid appended,
    as does a worker of an earlier epoch.
    """
    parents = _parents(snapshot)
    labels = {
        process.process: (process.label, parents.get(process.process, ""))
        for process in snapshot.processes
    }
    living, all_processes = (
        Counter(
            key for process in processes for key in ((process.label, None), labels[process.process])
        )
        for processes in (snapshot.living(), snapshot.processes)
    )
    names = {}
    for process in snapshot.processes:
        label, parent = labels[process.process]
        count = all_processes if process.is_gone else living
        if count[label, None] == 1:
            names[process.process] = label
        elif parent and count[label, parent] == 1 and count[parent, None] == 1:
            names[process.process] = f"{label} of {parent}"
        else:
            names[process.process] = f"{label} {process.pid}"
    return names


def joined_names(
    processes: Sequence[ProcessId], names: Mapping[ProcessId, str], limit: int = 4
) -> str:
    """Several processes in one phrase: `worker 0, worker 1 and 5 more`.

    Args:
        processes: Their identities.
        names: From `unique_names`; a process that is not there is shown by its pid.
        limit: How many are named.
    """
    return names_text((names.get(process, str(process.pid)) for process in processes), limit)


def wait_verb(subjects: Sized) -> str:
    """The verb after the names of processes: one `waits`, several `wait`."""
    return "waits" if len(subjects) == 1 else "wait"


def _parents(snapshot: Snapshot) -> dict[ProcessId, str]:
    """The label of the present or former parent of each worker, where that is observed."""
    known = {process.process: process.label for process in snapshot.processes}
    return {
        process.process: known[parent]
        for process in snapshot.processes
        if process.sample.worker_id is not None
        for parent in (process.parent, process.original_parent)[::-1]
        if parent in known
    }


def state_word(letter: str) -> str:
    """The word for a state letter of `/proc/PID/stat`; an unknown letter as it is."""
    return STATE_WORDS.get(letter, letter or "unknown")


def state_explanation(letter: str) -> str:
    """The state in a few words, for lines with room: `stopped by a signal`."""
    return _EXPLANATIONS.get(letter) or state_word(letter)


def process_state(process: Process, waits: Iterable[WaitEdge]) -> str:
    """The state of a process in one word, from its waits if known, else from the kernel.

    `idle` waits for work by design, `waiting` for something that is due.

    Args:
        process: The process.
        waits: Its waits in the wait graph.
    """
    if process.is_gone:
        return "ended"
    letter = process.sample.state
    if letter != "S":
        return state_word(letter)
    main = [edge for edge in waits if edge.tid == process.pid]
    if main:
        return "idle" if all(edge.is_ordinary for edge in main) else "waiting"
    return "running" if (process.cpu_percent or 0) >= BUSY_PERCENT else "sleeping"


class SignalMeaning(Struct, frozen=True):
    """Cause and fix of an exit by a signal."""

    cause: str
    advice: str


def signal_meaning(signal: int) -> SignalMeaning:
    """The usual reason why a process ends by a signal.

    Args:
        signal: Its number.
    """
    return _SIGNAL_MEANINGS.get(signal, _OTHER_SIGNAL)


_TIMER = SignalMeaning(
    "A timer that the process had set itself ran out (signal.alarm, signal.setitimer, or a library "
    "for timeouts and profiling), and no handler was installed for its signal at that moment. "
    "Or another process sent the signal.",
    "Install the handler before the timer is set, and cancel the timer when the guarded call ends. "
    "A timer survives exec but no fork; handlers survive a fork but no exec or spawn.",
)
_BY_THE_USER = SignalMeaning(
    "A process sent it, for the kernel does not: schedulers and launchers use it to announce the "
    "end of a job's time or to ask for a checkpoint, and send it to every process of the job. It "
    "ends each process that has no handler for it: one that was forked before its parent "
    "installed its own has none, and neither has a spawned one.",
    "Install a handler in this process too, or ignore the signal (signal.SIG_IGN) at the start of "
    "its target; have the scheduler signal only the process that handles it.",
)
CPU_LIMIT = SignalMeaning(
    "It had used all the cpu time it may use: at the hard limit (RLIMIT_CPU) the kernel sends "
    "SIGKILL, which cannot be caught. All threads of the process count, and a limit that code sets "
    "(resource.setrlimit) is valid for the whole process and for the children it starts later.",
    "Find the setrlimit call or the limit of the shell or scheduler (ulimit -t, LimitCPU) and "
    "raise it; set it only in the process that it is meant for.",
)
"""Of a process that got SIGKILL with its cpu time used up."""
_SIGNAL_MEANINGS: Mapping[int, SignalMeaning] = {
    Signals.SIGKILL: SignalMeaning(
        "It got SIGKILL from a user, a scheduler, its parent after a timeout, or the kernel's "
        "out-of-memory killer. The memory figures here give no sign of that last one.",
        "Search the kernel log (dmesg) for 'Out of memory', and the scheduler's log. Do not stop "
        "workers by a signal: neither kill() nor terminate() lets them release their locks. Ask "
        "them to end by an Event or a message that they check outside of every lock.",
    ),
    Signals.SIGALRM: _TIMER,
    Signals.SIGVTALRM: _TIMER,
    Signals.SIGPROF: _TIMER,
    Signals.SIGUSR1: _BY_THE_USER,
    Signals.SIGUSR2: _BY_THE_USER,
    Signals.SIGXCPU: SignalMeaning(
        "It used up its cpu time: the kernel sends SIGXCPU at the soft limit (RLIMIT_CPU). Some "
        "schedulers send it as well, before a limit of theirs.",
        "The limit counts the cpu time of the process since its start. Where the program sets it "
        "itself (resource.setrlimit) for one task, set it in a child made for that task, not in a "
        "process that goes on afterwards: a higher one would only be reached later. Otherwise "
        "raise it (ulimit -t, or LimitCPU of systemd).",
    ),
    Signals.SIGXFSZ: SignalMeaning(
        "It wrote a file past its limit of file size (RLIMIT_FSIZE) and had the default action for "
        "SIGXFSZ, which Python otherwise ignores.",
        "Raise the limit (ulimit -f), or write smaller files.",
    ),
    Signals.SIGPIPE: SignalMeaning(
        "It wrote to a pipe or socket whose reader was gone, and had the default action for "
        "SIGPIPE, which Python otherwise ignores.",
        "Find out why the reader ended. Remove signal.signal(SIGPIPE, SIG_DFL) where the process "
        "should get a BrokenPipeError instead.",
    ),
    Signals.SIGSYS: SignalMeaning(
        "A seccomp filter forbade a system call: a sandbox or a container's security profile.",
        "Look for the system call in the kernel's audit log (dmesg, type=1326) and allow it in the "
        "profile.",
    ),
    Signals.SIGTRAP: SignalMeaning(
        "It reached a breakpoint instruction: native code that checks itself, or a debugger that "
        "left one behind.",
        "Call faulthandler.register(signal.SIGTRAP, chain=True) to get the Python line on standard "
        "error; PYTHONFAULTHANDLER=1 does not handle this signal.",
    ),
}
_OTHER_SIGNAL = SignalMeaning(
    "Another process or the kernel sent a signal for which the process has no handler.",
    "Find out which process sends it (strace -f -e trace=none -e signal=all -p PID shows it), and "
    "install a handler or ignore it.",
)


def is_on_gpu(process: Process) -> bool:
    """Whether a process has memory on a GPU, or a descriptor of one where NVML shows none."""
    fds = process.sample.fds
    return bool(process.gpus) or bool(fds is not None and (fds.by_kind or {}).get("gpu"))


def can_have_hook(process: Process) -> bool:
    """Whether the process can have a hook; torch's helper processes are excluded."""
    if process.role in ("resource-tracker", "shm-manager", "forkserver", "compile-worker"):
        return False
    return process.sample.is_python or process.hook.state != "absent"
