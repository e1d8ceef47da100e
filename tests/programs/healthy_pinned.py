"""A pinning DataLoader, its accelerator stood in for: the threads and queues are torch's own."""

import time

import torch
from torch.utils.data import DataLoader, TensorDataset

from mpwatch.demo.bounds import begin


def stand_in_for_an_accelerator() -> None:
    torch.accelerator.is_available = lambda: True
    torch.accelerator.current_accelerator = lambda: torch.device("cpu")
    torch.accelerator.current_device_index = lambda: 0
    torch.accelerator.set_device_index = lambda _index: None
    torch.Tensor.pin_memory = lambda tensor, *_device: tensor


def main() -> None:
    seconds = begin(__doc__)
    stand_in_for_an_accelerator()
    until_s = time.monotonic() + seconds
    data = TensorDataset(torch.arange(100_000.0))
    for step, _batch in enumerate(DataLoader(data, batch_size=8, num_workers=2, pin_memory=True)):
        if step == 10:
            print("ready", flush=True)
        if time.monotonic() > until_s:
            break
        time.sleep(0.03)


if __name__ == "__main__":
    main()
