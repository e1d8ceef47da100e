"""What torch's CUDA allocator holds, for a request that names it: see `points/cuda.py`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any


def read(module: ModuleType) -> dict[str, Any]:
    """The gauge `cuda`; see `wire`.

    Args:
        module: `torch.cuda`, initialised.
    """
    devices = [
        {
            "index": index,
            "allocated": module.memory_allocated(index),
            "reserved": module.memory_reserved(index),
            "max_allocated": module.max_memory_allocated(index),
        }
        for index in range(module.device_count())
    ]
    return {
        "allocated": sum(device["allocated"] for device in devices),
        "reserved": sum(device["reserved"] for device in devices),
        "devices": [device for device in devices if device["reserved"]],
    }
