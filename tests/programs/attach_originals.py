"""Prints for each line of standard input which of all replaceable attributes are replaced.

While the second line is handled the hook is expected to be attached: what user code would capture
then is captured, and used at every later line.
"""

import json
import signal
import sys
from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
import torch.cuda
import torch.multiprocessing as mp
import torch.utils.data
from torch.utils.data import DataLoader, TensorDataset

ROOTS = ("multiprocessing", "torch.multiprocessing", "torch.storage", "torch.utils.data",
         "torch.cuda", "torch.distributed", "concurrent", "threading", "os", "sys", "gc",
         "builtins", "queue", "pickle", "signal", "random", "subprocess")  # fmt: skip
REDUCERS: dict[type, Any] = vars(ForkingPickler)["_extra_reducers"]
CHANGING = {"sys.last_exc", "sys.last_value", "sys.last_type", "sys.last_traceback"}
# Attaching and detaching make another list of the same finders (`ImportWatch.stop`).
CHANGING.add("sys.meta_path")


def replaceable() -> Iterator[tuple[str, int]]:
    """Name and identity of every attribute of the modules, and of the classes in them."""
    for name, module in tuple(sys.modules.items()):
        if not any(name == root or name.startswith(root + ".") for root in ROOTS):
            continue
        for key, value in tuple(vars(module).items()):
            yield f"{name}.{key}", id(value)
            if issubclass(type(value), type):
                for inner, attribute in tuple(vars(value).items()):
                    yield f"{name}.{key}.{inner}", id(attribute)
    for kind, function in REDUCERS.items():
        yield f"reducer of {kind.__qualname__}", id(function)
    for number in range(1, signal.NSIG):
        if number not in (32, 33):
            yield f"handler of {number}", id(signal.getsignal(number))
    yield "meta path", hash(tuple(map(id, sys.meta_path)))
    yield "path", hash(tuple(sys.path))


def changed(before: dict[str, int]) -> list[str]:
    found = dict(replaceable())
    moved = {name for name in before if name in found and found[name] != before[name]}
    return sorted(moved - CHANGING)


def main() -> None:
    queue = mp.get_context("fork").SimpleQueue()
    loader = DataLoader(TensorDataset(torch.arange(64.0)), num_workers=1, batch_size=8)
    sum(float(batch.sum()) for (batch,) in loader)  # imports modules that are imported late
    kept = list(sys.modules)
    before = dict(replaceable())
    captured: list[Any] = []
    print("ready", flush=True)
    for number, _ in enumerate(sys.stdin):
        if number == 1:
            iterator = iter(loader)
            captured += [queue.put, queue.get, iterator.__next__, dict(REDUCERS)]
        total = 0.0
        if captured:
            put, get, advance, reducers = captured
            put(torch.ones(3))
            total = float(get().sum() + advance()[0].sum())
            reducers[torch.UntypedStorage](torch.ones(2).untyped_storage())
        names = changed(before)
        new = [name for name in sys.modules if name not in kept]
        print(json.dumps([names, new, total]), flush=True)


if __name__ == "__main__":
    main()
