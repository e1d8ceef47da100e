"""Tensors between processes: `hook_tensors.py HOOKS MODE-METHOD-STRATEGY...`.

HOOKS is one of `main`, `child`, `both`, `none`: which processes have the hook. MODE is one of
`loader`, `exchange`, `pickle`, `carried`, `identity`: several are done one after the other, each
below a line with its name.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
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


def identity() -> None:
    """Every replaced object of torch is the same again once the hook is detached."""
    from multiprocessing.reduction import ForkingPickler

    import torch.multiprocessing.reductions
    import torch.utils.data._utils.fetch
    import torch.utils.data.dataloader

    import mpwatch

    mpwatch.uninstrument()
    names = [name for name in sys.modules if name.partition(".")[0] in ("torch", "multiprocessing")]
    spaces: dict[str, Any] = {name: vars(sys.modules[name]) for name in names}
    pickler: Any = ForkingPickler
    spaces["the table"] = pickler._extra_reducers
    for name in names:
        for each, holder in tuple(vars(sys.modules[name]).items()):
            if type(holder) is type and holder.__module__ == name:
                spaces[f"{name}.{each}"] = vars(holder)
    before = {name: dict(space) for name, space in spaces.items()}
    queued = list(torch.cuda._queued_calls)
    assert mpwatch.instrument()
    print("changed", changed(before, spaces) > 20)
    assert mpwatch.uninstrument()
    print("left", changed(before, spaces), torch.cuda._queued_calls == queued)


def changed(before: Any, spaces: Any) -> int:
    return sum(
        1
        for name, space in spaces.items()
        for key in {*before[name], *space}
        if before[name].get(key) is not space.get(key)
    )


LOADS = """
import multiprocessing, pickle, sys
sys.modules["mpwatch"] = None
multiprocessing.current_process().authkey = bytes.fromhex(sys.argv[1])
import torch
import torch.multiprocessing
for item in pickle.load(open(sys.argv[2], "rb")):
    print(item, type(item).__name__, item.is_shared())
print("hook", "_mpwatch_hook" in sys.modules)
"""


def carried() -> None:
    """Pickle with the hook attached, and load where mpwatch cannot be imported."""
    from multiprocessing.reduction import ForkingPickler

    items = [torch.ones(3), torch.nn.Parameter(torch.ones(2)), torch.empty(0)]
    with tempfile.NamedTemporaryFile() as file:
        file.write(ForkingPickler.dumps(items))
        file.flush()
        key = multiprocessing.current_process().authkey.hex()
        command = [sys.executable, "-c", LOADS, key, file.name]
        print(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def set_hook(is_in: bool) -> None:
    import mpwatch

    if is_in:
        mpwatch.instrument()
    else:
        mpwatch.uninstrument()


def main() -> None:
    hooks, *parts = sys.argv[1:]
    if hooks in ("main", "both"):
        set_hook(True)
    for part in parts:
        mode, method, strategy = part.split("-")
        print("part", part, flush=True)
        torch.multiprocessing.set_sharing_strategy(strategy)
        if mode == "loader":
            loader(method)
        elif mode == "exchange":
            exchange(method, strategy, hooks)
        elif mode == "identity":
            identity()
        elif mode == "carried":
            carried()
        else:
            pickles()
        sys.stdout.flush()


if __name__ == "__main__":
    main()
    print(os.environ.get("NOTHING", "end"), flush=True)
