"""A simulated accelerator, so that a DataLoader starts its pin-memory thread on any machine."""

from __future__ import annotations

import torch


def simulate_accelerator() -> None:
    """Replace the functions of torch that the pin-memory thread calls (torch 2.13).

    Threads, queues and forks stay torch's own; pinning returns the tensor itself.
    """
    torch.accelerator.is_available = lambda: True
    torch.accelerator.current_accelerator = lambda: torch.device("cpu")
    torch.accelerator.current_device_index = lambda: 0
    torch.accelerator.set_device_index = lambda _index: None
    torch.Tensor.pin_memory = lambda tensor, *_device: tensor
