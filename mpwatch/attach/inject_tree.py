"""Inject the hook into all processes of a job, and detach it from them.

A process that is confined more tightly than the job's root process is left out. One that runs
untrusted code (a judge, a sandboxed tool) has a system-call filter, another user, namespaces or a
security label of its own. The hook opens files, maps memory and creates a socket: a filter may kill
the process for this (SECCOMP_RET_KILL_PROCESS of seccomp(2)), and nothing outside the sandbox
should depend on a process in it. The confinement of the root process itself, for example by a
container, is only the basis of comparison. If the root exited before it could be read, that of
mpwatch is: more processes may be left out then, and none that is confined.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeVar

from mpwatch.attach.inject import detach, inject
from mpwatch.attach.native import tracer
from mpwatch.attach.outcomes import Attached, Begun, Detached, Refused, not_logged
from mpwatch.attach.target import read_target
from mpwatch.collect.hook import discovery
from mpwatch.collect.job.reader import ReadRequest, TreeCollector
from mpwatch.collect.process import procfs
from mpwatch.collect.process.procfs import TICKS_PER_S, age_s, read_stat, stat_of
from mpwatch.model.cmdline import python_program
from mpwatch.model.ids import ProcessId
from mpwatch.model.injection import LEFT_ALONE
from mpwatch.model.samples import ProcSample
from mpwatch.model.sanitize import clean

MAX_WAITING = min(256, 16 * (os.cpu_count() or 1))
"""Injections at a time, each on a thread. Nearly all of the time they wait until the targets run
Python code; but targets that do load the hook at the same time, each with 70 ms of cpu. With 256 on
2 cpus, 1,000 processes made a load of 400 for more than 8 minutes."""
MAX_WORKING = 4
"""Injections that work at a time. With more, a stopped target would stay stopped while other
threads of the observer hold the GIL."""
MAX_DETACHING = min(64, 8 * (os.cpu_count() or 1))
"""Detaches at a time; most targets answer immediately."""
GENERATIONS = 4
"""How many times to search for children started meanwhile; children of hooked parents have it."""
MIN_AGE_S = 0.05
"""Age from which a new child is examined: before its exec it looks like its parent, and after
`vfork` it shares the parent's memory."""
WITHIN_S = 0.5
"""How long to wait for new children to reach that age."""
_POLL_S = 0.02
_LOOK_S = 1.0
"""How often it is checked that the threads that inject or detach have not ended."""
_OBSERVERS = ("mpwatch", "-m mpwatch")
"""Program names of mpwatch; a program that it runs has its own name."""

NOT_WANTED = "it was called off"
"""Why an injection does not begin once its session ends, or the hook is detached."""
R = TypeVar("R", Attached, Detached)
Sleep = Callable[[float], None]
_SEPARATING = ("user", "pid", "mnt")
"""Namespaces that a sandbox creates. Not net: the hook's socket is a file. Not ipc, uts and cgroup:
nothing of the hook depends on them. The time namespace is compared with that of mpwatch, see
`methods.require_same_clocks`."""
_WITH_FILTERS = 2
_CAP_SYS_ADMIN = 1 << 21
_FILTERED = "it is sandboxed: a system-call filter (seccomp) that {than} does not have"
_MAYBE_FILTERED = (
    "it has system-call filters (seccomp), and this kernel does not say whether it has more of them"
    " than {than} (Linux 5.9 and later do)"
)


def inject_tree(
    processes: Iterable[ProcSample],
    progress: Callable[[Attached], None],
    timeout_s: float = 1.0,
    *,
    again: bool = False,
    begun: Begun = not_logged,
    ended: Callable[[Attached], None] = lambda _: None,
    root: Root | None = None,
    is_wanted: Callable[[], bool] = lambda: True,
    with_late_children: bool = True,
) -> tuple[Attached, ...]:
    """Inject the hook into every Python process of a job; a refusal does not affect the others.

    Each injection is done on a thread of its own: a signal that ends mpwatch does not interrupt it.

    Args:
        processes: The job as sampled, parents first.
        progress: Called on this thread with the outcome of each process as it is known.
        timeout_s: How long to wait for each.
        again: Only repeat pending injections, see `inject`.
        begun: Called before a target is changed, on any thread.
        ended: Called with each result, on the thread that has called `begun`.
        root: The root process of the job; by default, the first of the processes.
        is_wanted: Asked before each injection, on any thread; `begun` may refuse those that are
            further.
        with_late_children: Whether children are included that were started since the job was
            sampled, before their parent had the hook.

    Returns:
        All outcomes, in the order of the processes, then those of new children.
    """
    outcomes: dict[ProcessId, Attached] = {}
    samples = list(processes)
    if not samples:
        return ()
    root = root or Root(samples[0].process)
    for _ in range(GENERATIONS):
        inject_one = partial(inject, timeout_s=timeout_s, again=again, begun=begun)
        outcomes |= _inject_all(samples, root, progress, inject_one, is_wanted, ended)
        if again or not with_late_children or not is_wanted():
            break
        samples = late_children(outcomes)
        if not samples:
            break
    return tuple(outcomes.values())


def detach_tree(
    processes: Iterable[ProcSample],
    progress: Callable[[Detached], None],
    timeout_s: float = 1.0,
    *,
    begun: Begun = not_logged,
) -> tuple[Detached, ...]:
    """Detach the hook from every process of a job, children before parents.

    Children that were forked from a parent with the hook, also meanwhile, are included. `begun` is
    called before a target is changed, on any thread.
    """
    samples, outcomes = list(processes), dict[ProcessId, Detached]()
    if not samples:
        return ()
    root = Root(samples[0].process)
    for _ in range(GENERATIONS):
        wanted = [s.process for s in samples if s.is_python and s.state not in ("Z", "X")]
        without: dict[ProcessId, Detached] = {}

        def report(outcome: Detached, without: dict[ProcessId, Detached] = without) -> None:
            # Whether the others have inherited a hook is known once all are examined.
            if outcome.had_hook:
                progress(outcome)
            else:
                without[outcome.process] = outcome

        outcomes |= _detach_all(wanted, partial(detach, timeout_s=timeout_s, begun=begun), report)
        asleep = [process for process in inheriting(outcomes) if process in without]
        for process in without.keys() - set(asleep):
            progress(without[process])
        confined = root.confined([sample for sample in samples if sample.process in asleep])
        detach_one = partial(detach_inherited, confined, timeout_s=timeout_s, begun=begun)
        outcomes |= _detach_all(asleep, detach_one, progress)
        seen = {sample.process for sample in samples} | outcomes.keys()
        samples = [sample for sample in late_children(seen) if why_not(sample) is None]
        if not samples:
            break
    return tuple(outcomes.values())


def detach_inherited(
    confined: Mapping[ProcessId, str],
    process: ProcessId,
    *,
    timeout_s: float = 1.0,
    begun: Begun = not_logged,
) -> Detached:
    """Detach a hook that a process may have inherited by a fork.

    As long as it has no thread, only code in the process can take it out; nothing is injected for
    that into one that is confined more tightly than the root.
    """
    may_be_asleep = process not in confined
    outcome = detach(process, timeout_s=timeout_s, may_be_asleep=may_be_asleep, begun=begun)
    if may_be_asleep or outcome.had_hook or outcome.reason:
        return outcome
    reason = f"it was forked from a process with the hook, and {confined[process]}"
    return replace(outcome, state="silent", reason=reason, had_hook=True)


def inheriting(outcomes: Mapping[ProcessId, Detached], proc: str = "/proc") -> list[ProcessId]:
    """The processes that have inherited a hook by a fork, and not used it yet.

    A forked child makes thread, files and socket of its hook only with its first record; before, it
    has the mark of one. Hooks of release 0.2.0 have no mark: a child has one if its parent had it
    when it was forked, and if it has executed no program since.

    Args:
        outcomes: Of detaching all processes of a job from hooks that are visible.
        proc: Path of procfs.

    Returns:
        Parents before children.
    """
    since_s = {p.pid: found.since_s or 0.0 for p, found in outcomes.items() if found.had_hook}
    earliest_s = min(since_s.values(), default=None)
    known = {process.pid for process in outcomes}
    found = []
    for process in sorted(outcomes, key=lambda process: process.start_ticks):
        stat = None if outcomes[process].had_hook else read_stat(proc, process.pid)
        if stat is None or stat.process != process or not stat.is_fork:
            continue
        if has_hook(process.pid):
            found.append(process)
            continue
        begun_s = since_s.get(stat.parent_pid)
        if stat.parent_pid not in known:
            # The parent has exited, or is not of the processes that are detached.
            begun_s = 0.0 if has_hook(stat.parent_pid) else earliest_s
        if begun_s is not None and (process.start_ticks + 1) / TICKS_PER_S >= begun_s:
            since_s[process.pid] = begun_s
            found.append(process)
    return found


def is_orphaned_fork(process: ProcessId, proc: str = "/proc") -> bool:
    """Whether a process has run no program since it was forked, by a process that has exited.

    It runs the program of that one, and the process that has adopted it runs another.
    """
    stat = read_stat(proc, process.pid)
    if stat is None or stat.process != process or not stat.is_fork:
        return False
    try:
        own, parents = (
            os.stat(f"{proc}/{pid}/exe") for pid in (process.pid, stat.parent_pid or process.pid)
        )
    except OSError:
        return True  # of another user, as init is
    return not os.path.samestat(own, parents)


def stray_forks(samples: Collection[ProcSample], proc: str = "/proc") -> list[ProcessId]:
    """The processes with a hook that are not of a job, and that a process of it may have forked.

    Such a process has the command line of one in the job, was forked since the job began by a
    process that has exited, and has left the job's process group and session: a second job of the
    same program could have done the same.

    Args:
        samples: The job, the root process first.
        proc: Path of procfs.
    """
    known = {sample.process.pid for sample in samples}
    begun_ticks = min(sample.process.start_ticks for sample in samples)
    commands, found = set(), []
    for pid in known:
        with contextlib.suppress(OSError):
            commands.add(procfs.read_cmdline(proc, pid))
    for pid in procfs.pids(proc):
        stat = None if pid in known else read_stat(proc, pid)
        if stat is None or not stat.is_fork or stat.start_ticks < begun_ticks:
            continue
        with contextlib.suppress(OSError):
            if procfs.read_cmdline(proc, pid) not in commands:
                continue
            if is_orphaned_fork(stat.process, proc) and has_hook(pid):
                found.append(stat.process)
    return found


def has_hook(pid: int) -> bool:
    """Whether a process shows parts of a hook; `False` where it cannot be read."""
    try:
        return bool(discovery.find(read_target(stat_of(pid).process).sample()))
    except (OSError, Refused):
        return False


def why_not(sample: ProcSample) -> str | None:
    """Why a process is excluded from injection; `None` if it is not."""
    if sample.state in ("Z", "X"):
        return "the process has ended"
    if sample.role in LEFT_ALONE:
        return LEFT_ALONE[sample.role]
    if not sample.is_python:
        return "it is not a Python process"
    is_tracer = sample.cmdline[-1:] == (tracer.NAME,)
    is_ours = is_tracer or python_program(sample.cmdline).name in _OBSERVERS
    return "it is mpwatch itself" if is_ours else None


def _inject_all(
    samples: list[ProcSample],
    root: Root,
    progress: Callable[[Attached], None],
    inject_one: Callable[..., Attached],
    is_wanted: Callable[[], bool],
    ended: Callable[[Attached], None],
) -> dict[ProcessId, Attached]:
    """Inject into each process that is not excluded, several at a time."""
    confined = root.confined(samples)
    reasons = {s.process: why_not(s) or confined.get(s.process) for s in samples}
    outcomes = {p: Attached(p, "absent", reason=r) for p, r in reasons.items() if r is not None}
    for outcome in outcomes.values():
        progress(outcome)
    wanted = [p for p, reason in reasons.items() if reason is None]
    turns = threading.BoundedSemaphore(MAX_WORKING)

    @contextlib.contextmanager
    def waiting() -> Iterator[None]:
        turns.release()
        try:
            yield
        finally:
            turns.acquire()

    def inject_if_wanted(process: ProcessId) -> Attached:
        with turns:
            if not is_wanted():
                return Attached(process, "absent", reason=NOT_WANTED)
            outcome = inject_one(process, waiting=waiting)
        ended(outcome)
        return outcome

    outcomes |= in_parallel(inject_if_wanted, wanted, MAX_WAITING, progress)
    return {sample.process: outcomes[sample.process] for sample in samples}


def _detach_all(
    processes: list[ProcessId],
    detach_one: Callable[[ProcessId], Detached],
    progress: Callable[[Detached], None],
) -> dict[ProcessId, Detached]:
    """Detach from each process, several at a time."""
    outcomes = in_parallel(detach_one, processes[::-1], progress=progress)
    return {process: outcomes[process] for process in processes}


def in_parallel(
    work: Callable[[ProcessId], R],
    processes: Sequence[ProcessId],
    at_once: int = MAX_DETACHING,
    progress: Callable[[R], object] = lambda _: None,
) -> dict[ProcessId, R]:
    """Do the same to each process, several at a time.

    An executor would wait for ever for a thread that ended between two of its statements because no
    memory was left. Where no thread can be started, all is done on this one: a detach must not need
    a limit of processes to be raised.

    Args:
        work: What is done, usually on another thread.
        processes: The processes, in the order in which they are begun with.
        at_once: The number of threads.
        progress: Called in this thread with each result, as soon as it is there.

    Raises:
        MemoryError: A thread ended without the result of a process.
    """
    left, done = deque(processes), SimpleQueue[R | Exception]()

    def work_on_what_is_left() -> None:
        while True:
            try:
                process = left.popleft()
            except IndexError:
                return
            try:
                done.put(work(process))
            except Exception as error:  # noqa: BLE001 - raised below, on the caller's thread
                done.put(error)

    threads = _started(work_on_what_is_left, min(at_once, len(processes)))
    if not threads:
        work_on_what_is_left()
    outcomes: dict[ProcessId, R] = {}
    try:
        while len(outcomes) < len(processes):
            outcome = _next(done, threads)
            if isinstance(outcome, Exception):
                raise outcome
            outcomes[outcome.process] = outcome
            progress(outcome)
    finally:
        for thread in threads:
            thread.join()
    return outcomes


def _started(target: Callable[[], None], wanted: int) -> list[threading.Thread]:
    """As many threads as could be started."""
    threads: list[threading.Thread] = []
    with contextlib.suppress(RuntimeError, MemoryError):  # at a limit of processes or memory
        for _ in range(wanted):
            thread = threading.Thread(target=target, name="mpwatch-attach", daemon=False)
            thread.start()
            threads.append(thread)
    return threads


def _next(done: SimpleQueue[R | Exception], threads: Sequence[threading.Thread]) -> R | Exception:
    """The next result; raises a MemoryError if no thread is left that could give one."""
    while True:
        try:
            return done.get(timeout=_LOOK_S)
        except Empty:
            if not any(each.is_alive() for each in threads) and done.empty():
                raise MemoryError("a thread of mpwatch ended: no memory was left") from None


def late_children(
    known: Iterable[ProcessId], proc: str = "/proc", sleep: Sleep = time.sleep
) -> list[ProcSample]:
    """The children of these processes that are not among them, with their descendants.

    A child forked just before its parent had the hook has none, and is in no list taken before the
    fork. Waits until each child is `MIN_AGE_S` old, for at most `WITHIN_S` in all.

    Args:
        known: Processes that have been handled already.
        proc: Path of procfs.
        sleep: Replaces `time.sleep` in tests.
    """
    listed = {process.pid: process for process in known}
    deadline_s = time.monotonic() + WITHIN_S
    while True:
        pids = [pid for parent in listed for pid in _children(parent, proc) if pid not in listed]
        young = [pid for pid in pids if _age_s(pid, proc) < MIN_AGE_S]
        if not young or time.monotonic() > deadline_s:
            return _with_descendants({*pids} - {*young}, listed, proc)
        sleep(_POLL_S)


def _with_descendants(
    pids: Collection[int], listed: Mapping[int, ProcessId], proc: str
) -> list[ProcSample]:
    """The processes with these pids and those below them, without the listed ones.

    Each tree of the listed processes is read once: to read one for each child takes minutes for a
    job that starts ten a second on a loaded machine.
    """
    if not pids:
        return []
    parents = {pid: stat.parent_pid for pid in listed if (stat := read_stat(proc, pid)) is not None}
    tops = [pid for pid, parent in parents.items() if parent not in listed]
    samples = {s.process.pid: s for pid in tops for s in _subtree(pid, proc)}
    found = set(pids)
    for pid, sample in samples.items():  # parents before their children
        if sample.parent_pid in found:
            found.add(pid)
    return [sample for pid, sample in samples.items() if pid in found and pid not in listed]


def _children(pid: int, proc: str) -> list[int]:
    """Pids of the children of all threads of a process; none if it is gone."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for tid in os.listdir(f"{proc}/{pid}/task"):
            with open(f"{proc}/{pid}/task/{tid}/children", "rb") as file:
                found += map(int, file.read().split())
    return found


def _age_s(pid: int, proc: str) -> float:
    """Seconds since the start of a process; `MIN_AGE_S` if it is gone, so it is not waited for."""
    try:
        return age_s(pid, proc)
    except OSError:
        return MIN_AGE_S


def _subtree(pid: int, proc: str) -> tuple[ProcSample, ...]:
    with contextlib.suppress(OSError, Refused):
        tree = TreeCollector(stat_of(pid, proc).process, proc=proc).collect(
            ReadRequest.processes_only()
        )
        if tree is not None:
            return tree.processes
    return ()


@dataclass(frozen=True, slots=True)
class Confinement:
    """The restrictions of a process; empty where they could not be read."""

    seccomp_mode: int
    """0 off, 1 strict, 2 filters: see proc(5), `Seccomp`."""
    filters: int | None
    """How many filters it has; `None` before Linux 5.9."""
    may_add_filters: bool
    """Whether it had the right to add one: seccomp(2) takes `no_new_privs`, or CAP_SYS_ADMIN in the
    user namespace."""
    uids: tuple[int, ...]
    """Real, effective and saved user id."""
    namespaces: tuple[str, ...]
    """Identities of the namespaces in `_SEPARATING`."""
    label: str
    """Label of the security module (SELinux, AppArmor, Smack)."""


def read_confinement(pid: int | str, proc: str = "/proc") -> Confinement:
    """Read the restrictions of a process, or of this one (`self`).

    Raises:
        OSError: The process has exited, or is hidden from this one.
    """
    fields = {}
    with open(f"{proc}/{pid}/status", encoding="utf-8", errors="replace") as file:
        for line in file:
            name, _, value = line.partition(":")
            fields[name] = value.split()
    return Confinement(
        seccomp_mode=_first(fields.get("Seccomp")),
        filters=_count(fields.get("Seccomp_filters")),
        may_add_filters=_may_add_filters(fields),
        uids=tuple(map(int, fields["Uid"][:3])),
        namespaces=tuple(_link(f"{proc}/{pid}/ns/{name}") for name in _SEPARATING),
        label=_label(pid, proc),
    )


class Root:
    """The root process of a job, with whose confinement that of the others is compared.

    It is read whenever it is needed, and what was read last is kept for when the root has exited.
    """

    def __init__(self, process: ProcessId, proc: str = "/proc") -> None:
        """Read the confinement of the root process, if it has not exited."""
        self.process = process
        self._proc = proc
        self._confinement: Confinement | None = None
        self._read()

    def confined(self, samples: Iterable[ProcSample]) -> dict[ProcessId, str]:
        """The processes that are confined more tightly than the root, with the reason."""
        reasons = {}
        basis, than, why = self._read(), "the root process", ""
        if basis is None:
            basis, than = read_confinement("self", self._proc), "mpwatch"
            why = " (the root process has exited)"
        for sample in samples:
            if sample.process == self.process:
                continue
            try:
                confinement = read_confinement(sample.process.pid, self._proc)
            except OSError:
                continue  # the process is gone or hidden; `inject` reports that
            reason = why_too_confined(confinement, basis, than)
            if reason is not None:
                reasons[sample.process] = reason + why
        return reasons

    def _read(self) -> Confinement | None:
        """The newest confinement of the root process; `None` if it was never read."""
        with contextlib.suppress(OSError):
            found = read_confinement(self.process.pid, self._proc)
            # Afterwards, so that what was read is not of another process with the same pid. One
            # that has ended has no namespaces any more.
            stat = stat_of(self.process.pid, self._proc)
            if stat.process == self.process and not stat.has_ended:
                self._confinement = found
        return self._confinement


def why_too_confined(
    process: Confinement, basis: Confinement, than: str = "the root process"
) -> str | None:
    """Why a process is excluded, compared with another one; `None` if it is not.

    `than` names the other one.
    """
    if process.seccomp_mode not in (0, basis.seccomp_mode):
        return _FILTERED.format(than=than)
    if process.filters is not None and basis.filters is not None:
        if process.filters > basis.filters:
            return _FILTERED.format(than=than)
    elif process.seccomp_mode == _WITH_FILTERS and _may_have_more_filters(process, basis):
        return _MAYBE_FILTERED.format(than=than)
    if process.uids != basis.uids:
        shown = "/".join(map(str, dict.fromkeys(process.uids)))
        return f"it runs as another user (uid {shown}) than {than} (uid {basis.uids[0]})"
    for name, own, its in zip(_SEPARATING, process.namespaces, basis.namespaces, strict=True):
        if own and its and own != its:
            return f"it lives in another {name} namespace than {than}"
    if process.label and basis.label and process.label != basis.label:
        return f"it has another security label than {than} ({clean(process.label)})"
    return None


def _may_have_more_filters(process: Confinement, basis: Confinement) -> bool:
    """Whether a process may have filters that another one does not have, if none are counted.

    It has not if it never had the right to add one. In a user namespace of its own it would have
    had all rights.
    """
    own, its = process.namespaces[0], basis.namespaces[0]
    return process.may_add_filters or not own or own != its


def _may_add_filters(fields: dict[str, list[str]]) -> bool:
    """Whether a process has `no_new_privs`, or may ever get CAP_SYS_ADMIN (capabilities(7))."""
    try:
        bounding = int(fields["CapBnd"][0], 16)
        return fields["NoNewPrivs"][0] != "0" or bool(bounding & _CAP_SYS_ADMIN)
    except (KeyError, IndexError, ValueError):
        return True


def _count(values: list[str] | None) -> int | None:
    return int(values[0]) if values else None


def _first(values: list[str] | None) -> int:
    return int(values[0]) if values else 0


def _link(path: str) -> str:
    """Target of a link; empty if it is hidden or the kernel has no such namespace."""
    try:
        return os.readlink(path)
    except (PermissionError, FileNotFoundError):
        return ""


def _label(pid: int | str, proc: str) -> str:
    """The security label of a process; empty without a security module."""
    try:
        with open(f"{proc}/{pid}/attr/current", "rb") as file:
            return file.read(4096).rstrip(b"\0\n").decode("utf-8", "replace")
    except OSError:  # EINVAL where no security module has labels
        return ""
