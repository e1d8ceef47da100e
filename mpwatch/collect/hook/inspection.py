"""The hook in a process: by its own hello, and by procfs."""

from __future__ import annotations

import os
import time
from typing import Any

from mpwatch.collect.hook import discovery
from mpwatch.collect.hook.discovery import NoHook
from mpwatch.collect.process import procfs
from mpwatch.collect.process.identify import uid_inside
from mpwatch.hook import wire
from mpwatch.model.host import Check
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import ProcSample
from mpwatch.model.sanitize import clean
from mpwatch.model.units import seconds_text

_SHOWN = 12


def hook_checks(process: ProcessId, proc: str = "/proc") -> tuple[Check, ...]:
    """Inspect once; an existing hook is connected to, and no request is sent."""
    try:
        sample = _sample(process, proc)
    except OSError as error:
        return (Check("hook", "note", "unknown", f"It is not readable: {error.strerror}."),)
    hello: dict[str, Any] | None = None
    none: NoHook | None = None
    try:
        with discovery.connect(sample, proc) as client:
            hello = discovery.read_frame(client, wire.HELLO, discovery.HELLO_WITHIN_S)
    except NoHook as refusal:
        none = refusal
    return (_said(process, hello, none), _patched(hello), *_outside(sample, proc))


def _sample(process: ProcessId, proc: str) -> ProcSample:
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


def _said(process: ProcessId, hello: dict[str, Any] | None, none: NoHook | None) -> Check:
    """What the hook reports about itself."""
    if none is not None:
        reason = clean(str(none))
        return Check("hook", "ok", "absent", f"No hook answers: {reason}.")
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
    rings = [found.ring] if found.ring else []
    sockets = [found.socket] if found.socket else []
    return (
        listed,
        _listed("hook mappings", rings, "Mapped into the process: the ring of its hook."),
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
