"""What could not be read, and which of it matters to a job."""

from __future__ import annotations

from mpwatch.model.samples import NO_GPUS
from mpwatch.model.snapshot import Process, Snapshot

_NO_DEVICES = ("", "-1", "NoDevFiles")
"""Values of CUDA_VISIBLE_DEVICES that hide all GPUs from a process."""


def problems_of(snapshot: Snapshot) -> tuple[str, ...]:
    """What could not be read of the job and the host, each sentence once.

    That no GPU can be shown is left out if the job does not use one.
    """
    problems = dict.fromkeys((*snapshot.problems, *snapshot.host.problems))
    if any(problem.startswith(NO_GPUS) for problem in problems) and not uses_gpu(snapshot):
        return tuple(problem for problem in problems if not problem.startswith(NO_GPUS))
    return tuple(problems)


def uses_gpu(snapshot: Snapshot) -> bool:
    """Whether a process of the job uses a GPU, or has a setting that names GPUs."""
    return any(map(_uses_gpu, snapshot.processes))


def _uses_gpu(process: Process) -> bool:
    """By its memory on a GPU, open device files, the mapped driver, or its environment.

    The CUDA libraries of torch prove nothing: torch's default package maps them on any machine. The
    driver, `libcuda.so`, is loaded on first use.
    """
    sample = process.sample
    kinds = sample.fds.by_kind if sample.fds is not None else None
    libraries = sample.maps.libraries if sample.maps is not None else ()
    return (
        bool(process.gpus)
        or bool((kinds or {}).get("gpu"))
        or any(name.startswith("libcuda.so") for name in libraries)
        or sample.environment.get("CUDA_VISIBLE_DEVICES", "") not in _NO_DEVICES
    )
