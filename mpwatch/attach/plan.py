"""Dry run: what an injection would do to each process of a job, without changing any."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

from mpwatch.attach import methods
from mpwatch.attach.inject_tree import Root, why_not
from mpwatch.attach.methods import PENDING_CALL, Attempt, require_same_clocks, require_usable
from mpwatch.attach.native import native_call
from mpwatch.attach.outcomes import Refused
from mpwatch.attach.payload import exchange_dir, install
from mpwatch.attach.target import Target, read_target
from mpwatch.collect.hook.discovery import has_files
from mpwatch.hook import wire
from mpwatch.model.injection import ALREADY_THERE, InjectionPlan, PlannedInjection
from mpwatch.model.samples import ProcSample
from mpwatch.model.sanitize import clean

_POLL_S = 0.02


def plan_injection(
    samples: Iterable[ProcSample], *, only: Collection[int] = (), root: Root | None = None
) -> InjectionPlan:
    """Examine every process of a job; nothing is written, stopped or connected to.

    The state of a process may change before the injection, so the real result may differ.

    Args:
        samples: The job.
        only: The chosen pids; all of the job if empty.
        root: The root process of the job; by default, the first of the samples.
    """
    job = list(samples)
    confined = (root or Root(job[0].process)).confined(job) if job else {}
    planned = (_planned(sample, only, confined.get(sample.process)) for sample in job)
    return InjectionPlan(tuple(planned), patch_points())


def patch_points() -> tuple[str, ...]:
    """What the hook replaces, as `module: name`."""
    # Imported here: only a plan needs the table, and it loads all hook points.
    from mpwatch.hook.points import TABLE

    return tuple(dict.fromkeys(f"{point.module}: {point.name}" for point in TABLE))


def _planned(sample: ProcSample, only: Collection[int], confined: str | None) -> PlannedInjection:
    """The plan for one process; `confined` is why it is left out as more confined than the root."""
    process = sample.process
    reason = why_not(sample)
    if reason is not None:
        return PlannedInjection(process, sample.name, sample.role, reason=reason, is_helper=True)
    if only and process.pid not in only:
        return PlannedInjection(process, sample.name, sample.role, reason="--only leaves it out")
    if confined is not None:
        return PlannedInjection(process, sample.name, sample.role, reason=confined)
    if has_files(sample):
        return PlannedInjection(process, sample.name, sample.role, ALREADY_THERE)
    try:
        target, runtime = _examined(sample)
    except Refused as refusal:
        return PlannedInjection(
            process,
            sample.name,
            sample.role,
            reason=refusal.reason,
            fix=refusal.fix,
            passes=refusal.passes,
        )
    except OSError as error:
        reason = f"it could not be examined: {error.strerror}"
        return PlannedInjection(process, sample.name, sample.role, reason=reason)
    return PlannedInjection(
        process, sample.name, sample.role, PENDING_CALL, writes=_writes(target, clean(runtime, 300))
    )


def _examined(sample: ProcSample) -> tuple[Target, str]:
    """A process that can be injected, and its runtime directory.

    Waits `methods.PASSES_WITHIN_S` for a temporary obstacle.

    Raises:
        Refused: It cannot be injected.
        OSError: The process could not be read.
    """
    deadline_s = time.monotonic() + methods.PASSES_WITHIN_S
    while True:
        target = read_target(sample.process)
        require_same_clocks(target)
        try:
            require_usable(Attempt(target))
            methods.require_memory(target)
            return target, exchange_dir.runtime_directory(target, make=False)
        except Refused as refusal:
            if not refusal.passes or time.monotonic() > deadline_s:
                raise
        time.sleep(_POLL_S)


def _writes(target: Target, where: str) -> tuple[str, ...]:
    """The writes of an injection into one process, as sentences for the user.

    Args:
        target: The process.
        where: Its runtime directory.
    """
    stem = wire.stem(target.pid_inside, target.process.start_ticks)
    suffixes = ", ".join(wire.FILE_SUFFIXES)
    code_bytes = len(native_call.native_code().content)
    copy = (
        f"directory {exchange_dir.COPY_PREFIX}HASH in {where}, if it is not there: a copy of the "
        "hook's package; removed by mpwatch detach with the last hook of that directory",
    )
    return (
        f"{native_call.BLOCK_BYTES + code_bytes} bytes of unused memory, and one call of "
        "Py_AddPendingCall made by its main thread, which is stopped for about a millisecond",
        f"directory {exchange_dir.PREFIX}{stem} in {where}; removed once the hook has answered",
        *(copy if install.needs_copy(target) else ()),
        f"by the hook, until it is detached: {stem} with {suffixes} there, and one thread",
    )
