"""Processes hold a CUDA context on a GPU that they need not use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called, counted
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process
from mpwatch.model.units import bytes_text

RULE = "cuda-contexts-everywhere"
STRAY_BYTES = 2 * 2**30
"""A context alone takes 0.3 to 0.6 GiB; a rank that computes on a GPU takes more."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for workers on a GPU, and for processes with just a context on another."""
    on_gpu: defaultdict[ProcessId, list[tuple[int, int | None]]] = defaultdict(list)
    processes: dict[ProcessId, Process] = {}
    for process in index.snapshot.living():
        for use in process.gpus:
            on_gpu[process.process].append((use.index, use.memory_bytes))
            processes[process.process] = process
    workers = [processes[p] for p in on_gpu if processes[p].role == "loader-worker"]
    if workers:
        held = sum(memory or 0 for p in workers for _, memory in on_gpu[p.process])
        yield _finding(
            workers,
            f"{counted(len(workers), 'DataLoader worker holds', 'DataLoader workers hold')} "
            f"{bytes_text(held)} of GPU memory",
            "workers",
        )
    strays = [processes[p] for p, uses in on_gpu.items() if _has_stray(processes[p], uses)]
    if strays:
        count = len(strays)
        yield _finding(
            strays,
            f"{counted(count, 'process holds', 'processes hold')} a CUDA context on a second GPU",
            "strays",
        )


def _has_stray(process: Process, uses: list[tuple[int, int | None]]) -> bool:
    """Whether a process computes on one GPU and has just a context on another."""
    if process.role == "loader-worker" or len(uses) < 2:
        return False
    sizes = sorted(memory for _, memory in uses if memory is not None)
    return len(sizes) > 1 and sizes[0] < STRAY_BYTES and sizes[-1] > 2 * sizes[0]


def _finding(processes: list[Process], summary: str, subject: str) -> Finding:
    """Describe the contexts and their memory."""
    uses = [
        f"{called(process)}: "
        + ", ".join(f"gpu{u.index} {bytes_text(u.memory_bytes)}" for u in process.gpus)
        for process in processes[:4]
    ]
    more = (f"and {len(processes) - 4} more",) if len(processes) > 4 else ()
    return Finding(
        rule=RULE,
        severity=Severity.WARNING,
        process=processes[0].process,
        subject=subject,
        summary=summary,
        evidence=(*uses, *more),
        cause=f"A CUDA context costs 0.3 to 0.6 GiB for each process and GPU. {_CAUSES[subject]}",
        advice=_ADVICE[subject],
    )


_CAUSES: Mapping[str, str] = {
    "workers": (
        "A worker creates one when it unpickles a CUDA tensor, calls torch.cuda.set_device, or "
        "moves a tensor to the GPU."
    ),
    "strays": (
        "A process creates one on a second GPU when it calls torch.load without map_location, or "
        "when a thread uses the default device 0."
    ),
}
_ADVICE: Mapping[str, str] = {
    "workers": "Use only the CPU in workers, and move batches to the GPU in main.",
    "strays": (
        "Set CUDA_VISIBLE_DEVICES to one GPU for each process (it then sees it as device 0), or "
        "call torch.cuda.set_device in every thread; load checkpoints with map_location."
    ),
}
