"""A job with existing objects: `attach_existing_objects.py WHEN`.

Every line of standard input is one step.

WHEN is `early` (the hook is loaded at the start) or `late` (it is injected in the middle). No
object that a hook should find is referenced by a name at module level.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, Dataset

PR_SET_PDEATHSIG = 1


class Numbers(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((256,), index)


def consume(inbox: Any, outbox: Any, parent_pid: int) -> None:
    """Receive tensors and print their sums, for as long as the parent runs."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        return
    while (tensor := inbox.get()) is not None:
        outbox.put(float(tensor.sum()))


def lines(inbox: Any, outbox: Any, batches: Iterator[torch.Tensor]) -> Iterator[str]:
    """Do a step for each line; objects are referenced by this frame alone."""
    buffer = torch.ones(1000).share_memory_()
    fresh = 0.0
    while sys.stdin.readline():
        inbox.put(buffer)  # the same memory again
        total = outbox.get()
        inbox.put(torch.full((500,), fresh))  # copied into shared memory for this send
        total += outbox.get()
        fresh += 1.0
        yield f"{total} {float(next(batches).sum())}"


def make_echo() -> Callable[[Any], Any]:
    """A function in whose closure there is a SimpleQueue."""
    simple = mp.get_context("fork").SimpleQueue()

    def echo(value: Any) -> Any:
        simple.put(value)
        return simple.get()

    return echo


def main() -> None:
    context = mp.get_context("fork")
    inbox, outbox = context.Queue(), context.Queue()
    child = context.Process(target=consume, args=(inbox, outbox, os.getpid()), daemon=True)
    child.start()
    loader = DataLoader(Numbers(), batch_size=4, num_workers=2, prefetch_factor=3)
    echo = make_echo()
    steps = lines(inbox, outbox, iter(loader))
    del inbox, outbox
    print("ready", flush=True)
    # `map` and the generator are referenced by the C stack of `writelines` only.
    sys.stdout.writelines(map("{}\n".format, map(echo, steps)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    if sys.argv[1] == "early":
        import mpwatch

        mpwatch.instrument()
    main()
