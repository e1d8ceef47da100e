"""Tensors between processes: `hook_tensors.py loader|exchange|pickle METHOD STRATEGY HOOKS`.

HOOKS is a word of `main`, `child`, `both`, `none`: who has the hook in.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
import torch.multiprocessing
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((300,), float(index))


def loader(method: str) -> None:
    batches = DataLoader(
        Numbers(),
        batch_size=4,
        num_workers=2,
        multiprocessing_context=method,
        persistent_workers=True,
    )
    print("sum", sum(float(batch.sum()) for batch in batches))
    print("ready", flush=True)
    sys.stdin.readline()
    print("sum", sum(float(batch.sum()) for batch in batches))


def answer(inbox: Any, outbox: Any, has_hook: bool, strategy: str) -> None:
    torch.multiprocessing.set_sharing_strategy(strategy)
    set_hook(has_hook)
    while (tensor := inbox.get()) is not None:
        tensor += 1
        outbox.put((tensor, tensor * 2, torch.empty(0)))
        inbox.get()


def exchange(method: str, strategy: str, hooks: str) -> None:
    context = torch.multiprocessing.get_context(method)
    inbox, outbox = context.Queue(), context.SimpleQueue()
    child = context.Process(
        target=answer, args=(inbox, outbox, hooks in ("child", "both"), strategy)
    )
    child.start()
    for number in range(5):
        mine = torch.full((100,), float(number))
        inbox.put(mine)
        same, double, empty = outbox.get()
        inbox.put("thanks")
        print(float(same.sum()), float(double.sum()), empty.shape, bool((mine == same).all()))
        again = same.clone()
        del same, double
        print(float(again[0]))
    inbox.put(None)
    child.join(60)
    print("exit", child.exitcode)


def pickles() -> None:
    from multiprocessing.reduction import ForkingPickler

    for item in (torch.ones(3), torch.nn.Parameter(torch.ones(2)), torch.empty(0)):
        data = bytes(ForkingPickler.dumps(item))
        print(b"mpwatch" in data, b"rebuild_storage" in data, b"torch.multiprocessing" in data)


def set_hook(is_in: bool) -> None:
    import mpwatch

    if is_in:
        mpwatch.instrument()
    else:
        mpwatch.uninstrument()


def main() -> None:
    mode, method, strategy, hooks = sys.argv[1:5]
    torch.multiprocessing.set_sharing_strategy(strategy)
    if hooks in ("main", "both"):
        set_hook(True)
    if mode == "loader":
        loader(method)
    elif mode == "exchange":
        exchange(method, strategy, hooks)
    else:
        pickles()


if __name__ == "__main__":
    main()
    print(os.environ.get("NOTHING", "end"), flush=True)
