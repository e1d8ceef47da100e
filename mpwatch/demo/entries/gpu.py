"""Part H: CUDA; none of it can be shown without a GPU."""

from __future__ import annotations

from mpwatch.demo.scenario import Scenario

_NEEDS_GPU = "needs an NVIDIA GPU and a CUDA build of torch"

_TITLES = {
    "cuda-in-forked-child": "use CUDA in a child forked after CUDA was initialised",
    "cuda-ipc-producer-exit": "exit a producer while others use its CUDA tensors",
    "cuda-ipc-limbo": "never release received CUDA tensors",
    "cuda-ipc-counter-files-and-events": "send more CUDA tensors than there are events",
    "cuda-contexts-everywhere": "make a CUDA context in every worker",
    "cuda-launch-blocking": "train with a debugging setting that makes every CUDA call wait",
    "cuda-ipc-allocator-mismatch": "share CUDA tensors from expandable segments",
}

SCENARIOS = tuple(
    Scenario(name=name, title=title, expected=(name,), not_runnable=_NEEDS_GPU)
    for name, title in _TITLES.items()
)
