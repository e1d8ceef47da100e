"""What a hook says of the CUDA memory that its process lent to others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mpwatch.diagnose.known_errors import number_of
from mpwatch.model.snapshot import Process


@dataclass(frozen=True, slots=True)
class CudaLent:
    """Tensors sent so far, and what has become of them."""

    sent: float
    unreleased: float
    """Sent and still held by a receiver, or never received."""
    synchronised: float
    """Sends that waited for the GPU, because no event was left or the platform has none."""
    bytes_held: float | None
    oldest_s: float | None
    """For how long the oldest of the unreleased has been out."""


def cuda_lent(process: Process) -> CudaLent | None:
    """The reading; `None` without a hook, or before the first CUDA tensor was sent."""
    reading = process.gauges.get("cuda_lent")
    if not isinstance(reading, Mapping):
        return None
    numbers = [number_of(reading, name) for name in ("sent", "unreleased", "synchronised")]
    sent, unreleased, synchronised = numbers
    if sent is None or unreleased is None or synchronised is None:
        return None
    oldest_ns = number_of(reading, "oldest_ns")
    return CudaLent(
        sent=sent,
        unreleased=unreleased,
        synchronised=synchronised,
        bytes_held=number_of(reading, "bytes"),
        oldest_s=None if oldest_ns is None else oldest_ns / 1e9,
    )
