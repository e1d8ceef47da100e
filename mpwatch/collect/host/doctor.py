"""Checks of `mpwatch doctor`: limits and permissions that a job needs, the hook in a process.

A hook is examined by its own hello and by procfs.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from mpwatch.collect.hook import discovery
from mpwatch.collect.hook.discovery import NoHook
from mpwatch.collect.hook.left_files import folders_of_user
from mpwatch.collect.host import orphans
from mpwatch.collect.host.gpu import GpuCollector, GpuReading
from mpwatch.collect.host.host import HostCollector
from mpwatch.collect.host.ptrace_access import AccessFacts, judge, judge_in_general, read_facts
from mpwatch.collect.process import fds, procfs
from mpwatch.collect.process.identify import python_version, uid_inside
from mpwatch.collect.process.memory import MAPS_BYTES_LIMIT
from mpwatch.hook import wire
from mpwatch.model.host import CgroupSample, Check, CheckState, FileSystemSample
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import ProcSample
from mpwatch.model.sanitize import clean
from mpwatch.model.units import DASH, bytes_text, count_text, seconds_text

T = TypeVar("T")

_SHOWN = 12
"""Parts of a hook, or threads, that one check lists."""
_VARIABLES = frozenset((b"TMPDIR", b"OMP_NUM_THREADS", b"XDG_RUNTIME_DIR"))


def examine(pid: int | None, proc: str = "/proc") -> tuple[Check, ...]:
    """Make all checks once.

    Args:
        pid: A process whose limits and view count; `None` for this one.
        proc: Path of procfs.
    """
    subject = os.getpid() if pid is None else pid
    environment = _environment(pid, proc)
    known = environment or {}
    status = procfs.parse_status(_attempt(lambda: procfs.read(f"{proc}/{subject}/status")) or b"")
    mask = status.get(b"Cpus_allowed", b"").replace(b",", b"")
    host = HostCollector(proc).collect(
        subject,
        known.get("TMPDIR"),
        int(mask, 16).bit_count() if mask else None,
        time.monotonic(),
        time.time(),
    )
    owner = int((status.get(b"Uid", b"").split() or [b"0"])[0])
    return (
        _open_files(pid, subject, proc),
        mappings(host.max_map_count, _only(pid, lambda it: _map_count(proc, it))),
        shm_space(host.shm),
        shm_inodes(host.shm),
        cgroup_memory(host.cgroup, host.problems),
        cgroup_pids(host.cgroup, host.problems),
        tracing(pid, proc),
        start_method(_version(pid, proc)),
        cores_and_threads(host.cpu_count, host.usable_cpus, known.get("OMP_NUM_THREADS")),
        cpu_load(host.load_1m, host.cpu_count),
        gpu_driver(GpuCollector().collect()),
        unknown("TMPDIR", "the environment is hidden")
        if environment is None
        else temporary_folder(environment.get("TMPDIR")),
        hook_folder(
            owner,
            known.get("XDG_RUNTIME_DIR"),
            f"{proc}/{subject}/root",
            _only(pid, lambda it: uid_inside(owner, it, proc)),
        ),
        left_by_hooks(folders_of_user(os.geteuid(), known.get("XDG_RUNTIME_DIR")), proc),
    )


def gpu_driver(reading: GpuReading) -> Check:
    """Whether there are GPUs and what they are."""
    if reading.gpus is None:
        reason = " ".join(reading.problems) or "No driver answered."
        return Check("GPU", "note", "none", f"{reason} Jobs on the CPU need none.")
    names = ", ".join(sorted({gpu.name for gpu in reading.gpus}))
    value = f"{len(reading.gpus)} x {names}" if reading.gpus else "driver without a device"
    meaning = "Memory and use of each process are shown where the driver reports them."
    return Check("GPU", "ok", value, meaning)


def _open_files(pid: int | None, subject: int, proc: str) -> Check:
    limits = _attempt(lambda: fds.limits(proc, subject))
    if limits is None:
        return unknown("open files", "the limits of the process are hidden")
    return open_files(limits.soft, limits.hard, _only(pid, lambda it: fds.count(proc, it)))


def _environment(pid: int | None, proc: str) -> Mapping[str, str] | None:
    """The variables that are checked; `None` if they are not readable."""
    if pid is None:
        return os.environ
    return _attempt(lambda: procfs.read_environment(proc, pid, _VARIABLES))


def _version(pid: int | None, proc: str) -> tuple[int, int] | None:
    """The version of the Python that runs, or would run, the job."""
    if pid is None:
        return sys.version_info[:2]
    exe = _attempt(lambda: os.readlink(f"{proc}/{pid}/exe"))
    major, _, minor = (python_version(proc, pid, exe) or "").partition(".") if exe else ("", "", "")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None


def _map_count(proc: str, pid: int) -> int:
    return procfs.read(f"{proc}/{pid}/maps", MAPS_BYTES_LIMIT).count(b"\n")


def _only(pid: int | None, read: Callable[[int], T]) -> T | None:
    """A reading that applies only to a process that was named."""
    return None if pid is None else _attempt(lambda: read(pid))


def _attempt(read: Callable[[], T]) -> T | None:
    """The reading, or `None` where it is hidden or the process is gone."""
    try:
        return read()
    except OSError:
        return None


FEW_DESCRIPTORS = 4096
DEFAULT_MAPPINGS = 65_530
"""The kernel's default of vm.max_map_count (DEFAULT_MAX_MAP_COUNT, include/linux/mm.h)."""
SMALL_SHM_BYTES = 1 << 30
TIGHT = 0.8
"""From this share on a limit counts as approaching."""
FULL = 0.95
FEW_PIDS = 1024
LONG_TMPDIR = 75
"""A socket's path holds 107 bytes and multiprocessing adds about 32 to TMPDIR (unix(7))."""


def open_files(soft: int | None, hard: int | None, used: int | None) -> Check:
    """RLIMIT_NOFILE; `None` as a limit is unlimited."""
    value = f"{_limit(soft)} soft, {_limit(hard)} hard" + _used(used)
    if soft is None:
        return Check("open files", "ok", value, "There is no limit.")
    fix = f"ulimit -n {hard or 65536} before the start, or resource.setrlimit in the program"
    if hard is not None and hard <= max(soft, FEW_DESCRIPTORS):
        fix = "a higher hard limit: docker run --ulimit nofile=65536, or LimitNOFILE= of the unit"
    if used is not None and used >= TIGHT * soft:
        meaning = f"Only {soft - used} more can be opened; then tensors no longer arrive."
        return Check("open files", "problem", value, meaning, fix)
    if soft < FEW_DESCRIPTORS:
        meaning = (
            "Every shared tensor a process keeps holds one descriptor, so keeping about"
            f" {soft} of them ends in `received 0 items of ancdata`."
        )
        return Check("open files", "warning", value, meaning, fix)
    return Check("open files", "ok", value, f"A process can keep about {soft} shared tensors.")


def mappings(limit: int | None, used: int | None) -> Check:
    """`vm.max_map_count`, and how many mappings a process has."""
    if limit is None:
        return unknown("memory mappings", "vm.max_map_count cannot be read")
    value = f"vm.max_map_count {limit}" + _used(used)
    fix = "sysctl -w vm.max_map_count=1048576 (root, for the whole machine), or fewer tensors"
    if used is not None and used >= TIGHT * limit:
        meaning = f"{limit - used} more, then mmap fails with `Cannot allocate memory (12)`."
        return Check("memory mappings", "problem", value, meaning, fix)
    if limit < DEFAULT_MAPPINGS:
        meaning = f"Less than the kernel's default {DEFAULT_MAPPINGS}: one per shared tensor kept."
        return Check("memory mappings", "warning", value, meaning, fix)
    meaning = f"A process can map about {limit} shared tensors at a time."
    return Check("memory mappings", "ok", value, meaning)


def shm_space(shm: FileSystemSample | None) -> Check:
    """Size and use of /dev/shm."""
    if shm is None:
        meaning = "Tensors cannot be shared between processes without it."
        fix = "mount -t tmpfs -o size=50% tmpfs /dev/shm"
        return Check("/dev/shm", "problem", "not there", meaning, fix)
    total, free = shm.total_bytes, shm.free_bytes
    share = (total - free) / total if total else 1.0
    value = f"{bytes_text(total)}, {100 * share:.0f}% used, {bytes_text(free)} free"
    fix = "docker run --shm-size=16g or --ipc=host; kubernetes: an emptyDir with medium Memory"
    if share >= FULL:
        meaning = "It is full: the next batch ends in `No space left on device` or `Bus error`."
        return Check("/dev/shm", "problem", value, meaning, fix)
    if share >= TIGHT or total < SMALL_SHM_BYTES:
        meaning = "It must hold workers x prefetch_factor x bytes of a batch, and what main keeps."
        return Check("/dev/shm", "warning", value, meaning, fix)
    meaning = f"Batches in flight may take {bytes_text(free)} together."
    return Check("/dev/shm", "ok", value, meaning)


def shm_inodes(shm: FileSystemSample | None) -> Check:
    """Number of free inodes in /dev/shm."""
    name = "/dev/shm files"
    if shm is None or shm.total_inodes is None or shm.free_inodes is None:
        return Check(name, "ok", "not counted", "Their number is not limited.")
    value = f"{count_text(shm.free_inodes)} of {count_text(shm.total_inodes)} free"
    if shm.free_inodes < (1 - TIGHT) * shm.total_inodes:
        meaning = "Every shared tensor is a file; without one left sharing fails."
        return Check(name, "warning", value, meaning, "mount -o remount,nr_inodes=1m /dev/shm")
    return Check(name, "ok", value, f"About {count_text(shm.free_inodes)} tensors can be shared.")


def cgroup_memory(cgroup: CgroupSample | None, problems: Sequence[str] = ()) -> Check:
    """Memory of the control group, its limit and its kills.

    Args:
        cgroup: Its numbers; a limit of `None` is unlimited, unless a problem says it is unknown.
        problems: Problems of reading the machine.
    """
    name = "cgroup memory"
    if hidden := _hidden(cgroup, "memory", problems):
        return unknown(name, hidden)
    assert cgroup is not None
    used, limit, kills = cgroup.memory_bytes, cgroup.memory_limit_bytes, cgroup.oom_kills
    value = _share(bytes_text(used), None if limit is None else bytes_text(limit))
    value += f", {kills} killed so far" if kills else ""
    fix = "a larger memory limit for the container or job, or fewer workers"
    if limit is not None and used is not None and used >= TIGHT * limit:
        state: CheckState = "problem" if used >= FULL * limit else "warning"
        meaning = f"{bytes_text(limit - used)} is left; then the kernel kills one with SIGKILL."
        return Check(name, state, value, meaning, fix)
    if kills:
        meaning = "The kernel has killed processes here for want of memory."
        return Check(name, "warning", value, meaning, fix)
    if limit is None:
        return Check(name, "ok", value, "Only the machine's own memory limits the job.")
    return Check(name, "ok", value, "/dev/shm counts towards this limit too.")


def cgroup_pids(cgroup: CgroupSample | None, problems: Sequence[str] = ()) -> Check:
    """Processes and threads the control group may have; arguments as `cgroup_memory`."""
    name = "cgroup pids"
    if hidden := _hidden(cgroup, "pids", problems):
        return unknown(name, hidden)
    assert cgroup is not None
    used, limit, hits = cgroup.pids_current, cgroup.pids_limit, cgroup.pids_limit_hits
    value = _share(count_text(used), None if limit is None else count_text(limit))
    value += f", refused {hits} time{'s' * (hits != 1)}" if hits else ""
    fix = "docker run --pids-limit=-1, TasksMax=infinity, or OMP_NUM_THREADS=1"
    if limit is None:
        return Check(name, "ok", value, "Workers and their threads are not limited here.")
    if hits or (used is not None and used >= TIGHT * limit):
        state: CheckState = "problem" if used is not None and used >= FULL * limit else "warning"
        meaning = "Threads count too; beyond it `can't start new thread` and fork fails."
        return Check(name, state, value, meaning, fix)
    if limit < FEW_PIDS:
        meaning = "Threads count too: workers x threads of each must fit."
        return Check(name, "warning", value, meaning, fix)
    return Check(name, "ok", value, "Workers and all their threads must fit.")


def cores_and_threads(cpu_count: int | None, usable: int | None, omp_threads: str | None) -> Check:
    """Cores that a job may use, and threads that its libraries will start."""
    name = "cores and threads"
    if cpu_count is None or usable is None:
        return unknown(name, "the number of cores cannot be read")
    value = f"{usable} of {cpu_count} cores usable, OMP_NUM_THREADS "
    value += omp_threads if omp_threads else "not set"
    if omp_threads:
        meaning = f"Each process uses {omp_threads} threads for its mathematics."
        return Check(name, "ok", value, meaning)
    if usable < cpu_count:
        meaning = (
            f"Libraries count all {cpu_count} cores and start that many threads in every process,"
            f" while only {usable} can run."
        )
        fix = f"OMP_NUM_THREADS={max(1, usable // 2)} before the program starts"
        return Check(name, "warning", value, meaning, fix)
    meaning = "DataLoader gives its workers one torch thread each; numpy and OpenCV take all cores."
    return Check(name, "note", value, meaning, "OMP_NUM_THREADS=1 where workers compute")


LOADED = 1.5
"""Of what wants to run and the cores: from here on each gets two thirds of a core or less."""
BUSY = 0.75


def cpu_load(load_1m: float | None, cpu_count: int | None) -> Check:
    """How many processes want to run, and how many can: with too many every figure is slower."""
    name = "cpu load"
    if load_1m is None or not cpu_count:
        return unknown(name, "the load cannot be read")
    value = f"{load_1m:.1f} in the last minute, on {cpu_count} core{'s' if cpu_count > 1 else ''}"
    if load_1m >= LOADED * cpu_count:
        meaning = (
            f"{load_1m / cpu_count:.1f} threads want each core (the kernel also counts those in "
            "uninterruptible sleep): steps take longer, and so do mpwatch's answers."
        )
        return Check(name, "warning", value, meaning, "see what uses them: top -o %CPU")
    if load_1m >= BUSY * cpu_count:
        meaning = "Most cores are in use: a job that starts now shares them."
        return Check(name, "note", value, meaning)
    return Check(name, "ok", value, "Cores are free.")


def temporary_folder(path: str | None) -> Check:
    """Whether sockets fit below TMPDIR."""
    shown = path or "/tmp"
    length = len(shown.encode("utf-8", "surrogateescape"))
    value = f"{length} characters"
    if length > LONG_TMPDIR:
        meaning = (
            "Too long: sharing a tensor fails with `AF_UNIX path too long`, in a background thread,"
            " and the other side waits for ever."
        )
        return Check("TMPDIR", "problem", value, meaning, "TMPDIR=/tmp for the job")
    return Check("TMPDIR", "ok", value, "Sockets for passing descriptors fit.")


def start_method(version: tuple[int, int] | None) -> Check:
    """The default start method of `multiprocessing` on Linux."""
    name = "start method"
    if version is None:
        return unknown(name, "the version of Python is unknown")
    value = f"Python {version[0]}.{version[1]}: "
    if version >= (3, 14):
        meaning = (
            "Datasets are pickled and every worker imports the program again; lambdas and a"
            " missing __main__ guard fail, and more than 251 tensors in a dataset do too."
        )
        fix = 'DataLoader(..., multiprocessing_context="fork") if the program relies on fork'
        return Check(name, "note", f"{value}forkserver by default", meaning, fix)
    meaning = (
        "Workers are copies of main: a lock that another thread of main holds at the fork stays "
        "locked in them for ever."
    )
    if version >= (3, 12):
        meaning += " Python warns when other threads live at a fork."
    fix = (
        'DataLoader(..., multiprocessing_context="forkserver") or get_context("spawn") where main '
        "has threads"
    )
    return Check(name, "note", f"{value}fork by default", meaning, fix)


def _hidden(cgroup: CgroupSample | None, controller: str, problems: Sequence[str]) -> str:
    """Why one controller cannot be checked; empty if it can."""
    if cgroup is None:
        return "no control group is visible here"
    return next((text for text in problems if text.startswith(f"control group, {controller}")), "")


def _share(used: str, limit: str | None) -> str:
    if limit is None:
        return "no limit" if used == DASH else f"{used} used, no limit"
    return f"{used} of {limit}"


def unknown(name: str, reason: str) -> Check:
    """A check that could not be made."""
    return Check(name, "note", "unknown", f"It could not be read: {reason}.")


def _limit(limit: int | None) -> str:
    return "unlimited" if limit is None else str(limit)


def _used(used: int | None) -> str:
    return "" if used is None else f", {used} used"


def tracing(pid: int | None, proc: str = "/proc") -> Check:
    """Whether py-spy can take stacks and the hook can be injected.

    Args:
        pid: The process; `None` for processes of this user in general.
        proc: Path of procfs.
    """
    facts = read_facts(os.getpid() if pid is None else pid, proc)
    return tracing_check(facts, is_general=pid is None)


def tracing_check(facts: AccessFacts, *, is_general: bool) -> Check:
    """The check of tracing permissions, from facts."""
    rights = judge_in_general(facts) if is_general else judge(facts)
    value = ", ".join(rights.facts[1:-1] if is_general else rights.facts)
    if rights.is_allowed:
        whose = "Processes of this user" if is_general else "This process"
        return Check("tracing rights", "ok", value, f"{whose} can be traced: stacks, attach.")
    reason = f"{rights.reason[:1].upper()}{rights.reason[1:]}."
    meaning = f"{reason} Everything from /proc is shown all the same."
    return Check("tracing rights", "warning", value, meaning, rights.fix)


def hook_folder(
    uid: int, xdg_runtime_dir: str | None, root: str = "", uid_inside: int | None = None
) -> Check:
    """Whether a hook can use a directory for its socket and its ring.

    Args:
        uid: Owner of the process for the hook.
        xdg_runtime_dir: `XDG_RUNTIME_DIR` of its environment.
        root: Path of its root directory.
        uid_inside: The owner's uid in the user namespace of the process.
    """
    reasons = []
    candidates = wire.runtime_candidates(uid if uid_inside is None else uid_inside, xdg_runtime_dir)
    for folder in candidates:
        reason = _refused(folder, root, uid)
        if reason is None:
            meaning = "Hooks put their sockets and rings there."
            return Check("hook directory", "ok", folder, meaning)
        reasons.append(f"{folder} {reason}")
    meaning = "The hook works without its ring file but nothing can connect to it."
    fix = f"remove or repair {candidates[-1]}"
    return Check("hook directory", "warning", "; ".join(reasons), meaning, fix)


KEPT_S = 24 * 3600
KEPT_BYTES = 64 << 20
"""What hooks keep of exited processes, see `KEEP_DEAD_S` in `hook.transport.runtime_dir`."""
_BEYOND = 1.5
"""A hook searches when it is attached and at one fork in 64, so there may be more for a while."""


def left_by_hooks(
    folders: tuple[str, ...],
    proc: str = "/proc",
    initial_namespace: int = orphans.INITIAL_PID_NAMESPACE,
) -> Check:
    """Files that the hooks of exited processes have left in this user's directories.

    A hook removes what is too old or too much, but does not search for it in a program of several
    threads without ctypes (`StaleFiles.is_due`). Arguments as `orphans.find_hook_files`.
    """
    name = "files of hooks"
    left = orphans.find_hook_files(folders, proc, initial_namespace)
    if not left.files:
        if left.problems:
            return Check(name, "note", "unknown", f"{left.problems[0]}.")
        return Check(name, "ok", "none", "No hook of an exited process has left any.")
    size_bytes = sum(each.size_bytes for each in left.files)
    oldest_s = max(each.age_s for each in left.files)
    value = f"{len(left.files)} of exited processes, {bytes_text(size_bytes)}"
    value += f", the oldest of {seconds_text(oldest_s)} ago"
    if oldest_s > _BEYOND * KEPT_S or size_bytes > _BEYOND * KEPT_BYTES:
        meaning = (
            "More than hooks keep (a day, 64M): they remove the rest when they are attached and"
            " at some forks, but not in programs of several threads without ctypes."
        )
        return Check(name, "note", value, meaning, "mpwatch clean --yes")
    meaning = "For mpwatch autopsy; hooks remove what is older than a day or beyond 64M."
    return Check(name, "ok", value, meaning)


def _refused(folder: str, root: str, uid: int) -> str | None:
    """Why a hook of this user could not use a directory, as far as its mode tells."""
    path = root + folder
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        reason = wire.runtime_refusal(folder, None, uid)
        can_be_made = _can_be_made(os.path.dirname(path), uid)
        return reason if reason is not None or can_be_made else "cannot be made"
    except OSError as error:
        return error.strerror or "cannot be examined"
    reason = wire.runtime_refusal(folder, found, uid)
    is_writable = uid == 0 or found.st_mode & 0o300 == 0o300
    return reason if reason is not None or is_writable else "is not writable"


def _can_be_made(parent: str, uid: int) -> bool:
    try:
        found = os.stat(parent)
    except OSError:
        return False
    own = found.st_uid == uid and bool(found.st_mode & stat.S_IWUSR)
    return uid == 0 or own or bool(found.st_mode & stat.S_IWOTH)


# --- the hook in a process ------------------------------------------------------------------------


def hook_checks(process: ProcessId, proc: str = "/proc") -> tuple[Check, ...]:
    """Inspect once; an existing hook is connected to, and no request is sent."""
    try:
        sample = _found_by(process, proc)
    except OSError as error:
        return (Check("hook", "note", "unknown", f"It is not readable: {error.strerror}."),)
    hello: dict[str, Any] | None = None
    none: NoHook | None = None
    try:
        with discovery.connect(sample, proc) as client:
            hello = discovery.read_frame(client, wire.HELLO, discovery.HELLO_WITHIN_S)
    except NoHook as refusal:
        none = refusal
    return (
        _said(process, hello, none, is_asleep=_is_asleep(sample, proc)),
        _patched(hello),
        *_outside(sample, proc),
    )


def _is_asleep(sample: ProcSample, proc: str) -> bool:
    """Whether it has the mark of a hook and no other part; `False` where it is not readable."""
    try:
        found = discovery.find(sample, proc)
    except OSError:
        return False
    return found.has_mark and not found.is_awake


def _found_by(process: ProcessId, proc: str) -> ProcSample:
    """The facts needed to find the files of the hook.

    Raises:
        OSError: The process has exited, or is hidden.
    """
    pid = process.pid
    status = procfs.parse_status(procfs.read(f"{proc}/{pid}/status"))
    uid = int(status[b"Uid"].split()[0])
    return ProcSample(
        process=process,
        at_s=0.0,
        parent_pid=0,
        name="",
        cmdline=(),
        state="",
        uid=uid,
        ns_pid=int(status.get(b"NSpid", b"%d" % pid).split()[-1]),
        ns_uid=uid_inside(uid, pid, proc),
        environment=procfs.read_environment(proc, pid, frozenset((b"XDG_RUNTIME_DIR",))),
    )


def _said(
    process: ProcessId,
    hello: dict[str, Any] | None,
    none: NoHook | None,
    *,
    is_asleep: bool,
) -> Check:
    """What the hook reports about itself.

    One that a process has inherited by a fork has no thread, descriptor and file before its first
    event.
    """
    if none is not None and is_asleep:
        meaning = "Inherited by the fork that it began with; it has recorded no event yet."
        return Check("hook", "ok", "asleep", meaning, f"mpwatch detach {process.pid}")
    if none is not None:
        return Check("hook", "ok", "absent", f"No hook answers: {clean(str(none))}.")
    if hello is None:
        meaning = "It has a socket and sent no hello: the GIL is held, or the process is stopped."
        return Check("hook", "warning", "silent", meaning)
    since = ""
    if isinstance(hello.get("since_ns"), int):
        age_s = time.clock_gettime_ns(time.CLOCK_MONOTONIC) / 1e9 - hello["since_ns"] / 1e9
        since = f", for {seconds_text(age_s)}"
    version = clean(str(hello.get("version") or "version unknown"), 40)
    value = f"attached{since}, loaded by {clean(str(hello.get('started_by', '?')), 40)}, {version}"
    ring = clean(str(hello.get("ring") or "none"), 200)
    problems = hello.get("problems")
    problem_words = "; ".join(clean(str(each), 200) for each in _list(problems))
    meaning = f"Its ring is {ring}." + (f" It reports: {problem_words}." if problem_words else "")
    return Check("hook", "ok", value, meaning, f"mpwatch detach {process.pid}")


def _patched(hello: dict[str, Any] | None) -> Check:
    """The functions that it has replaced."""
    if hello is None:
        return Check("patch points", "ok", "unknown", "Only a hook that answers can list them.")
    patched = hello.get("patched")
    names = [clean(str(each), 80) for each in _list(patched)]
    missing = hello.get("missing")
    reasons = missing.items() if isinstance(missing, dict) else ()
    words = "; ".join(f"{clean(str(k), 80)}: {clean(str(v), 120)}" for k, v in list(reasons)[:5])
    shown = ", ".join(names) or "none"
    return Check(
        "patch points",
        "ok",
        f"{len(names)} set",
        f"Replaced: {shown}." + (f" Not set: {words}." if words else ""),
    )


def _outside(sample: ProcSample, proc: str) -> tuple[Check, ...]:
    """Threads, mappings, sockets and files of a hook, by procfs."""
    pid, stem = sample.process.pid, discovery.stem(sample)
    files = [
        f"{folder.removeprefix(f'{proc}/{pid}/root')}/{stem}{suffix}"
        for folder in discovery.folders(sample, proc)
        for suffix in wire.FILE_SUFFIXES
        if os.path.lexists(f"{folder}/{stem}{suffix}")
    ]
    listed = _listed("hook files", files, "Files of a hook in its runtime directory.")
    try:
        found = discovery.find(sample, proc)
    except OSError as error:
        hidden = f"Its descriptors and mappings are not readable: {error.strerror}."
        return listed, Check("hook parts", "note", "unknown", hidden)
    mappings = [*filter(None, (found.ring,)), *["the memory that marks it"] * found.has_mark]
    sockets = [found.socket] if found.socket else []
    return (
        listed,
        _listed("hook mappings", mappings, "Mapped into the process:"),
        _listed("hook socket", sockets, "Bound by the process: the hook's thread listens."),
        _threads(sample, proc, found.tids),
    )


def _threads(sample: ProcSample, proc: str, of_the_hook: tuple[int, ...]) -> Check:
    """The threads of a process, with those of its hook marked."""
    pid = sample.process.pid
    found = []
    try:
        for tid in sorted(map(int, os.listdir(f"{proc}/{pid}/task"))):
            if tid != pid:
                name = procfs.read(f"{proc}/{pid}/task/{tid}/comm").decode("utf-8", "replace")
                found.append(f"{tid} ({clean(name.strip(), 20)})")
    except OSError as error:
        return Check("threads", "note", "unknown", f"They are not readable: {error.strerror}.")
    numbers = ", ".join(map(str, of_the_hook))
    words = f"The hook's thread is {numbers}." if of_the_hook else "None of them is a hook's."
    listed = ", ".join(found[:_SHOWN]) + (" ..." if len(found) > _SHOWN else "")
    return Check("threads", "ok", f"{len(found)} beside the main thread", f"{words} {listed}")


def _listed(name: str, found: list[str], meaning: str) -> Check:
    if not found:
        return Check(name, "ok", "none", "No part of a hook was found.")
    shown = ", ".join(clean(each, 200) for each in found[:_SHOWN])
    return Check(name, "ok", f"{len(found)}", f"{meaning} {shown}")


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
