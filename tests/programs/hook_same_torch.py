"""As `hook_same.py`, for torch: `hook_same_torch.py with|without CASE...`."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
import warnings
from typing import Any

import torch
import torch.multiprocessing
from torch.utils.data import DataLoader, Dataset, IterableDataset

from tests.programs.hook_same import Alarm, attempt, on_alarm, say


class Numbers(Dataset[torch.Tensor]):
    """Eight samples; one of them may fail in a given way."""

    def __init__(self, what: str = "", index: int = 5) -> None:
        self.what, self.index = what, index

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        if index == self.index:
            if self.what == "fails":
                try:
                    raise KeyError("the reason")
                except KeyError as reason:
                    raise ValueError(f"sample {index}") from reason
            if self.what == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.what == "exits":
                sys.exit(3)
            if self.what == "sleeps":
                time.sleep(30)
            if self.what == "does not pickle":
                return lambda: None
        return torch.full((300,), float(index))


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Any:
        info = torch.utils.data.get_worker_info()
        return iter(torch.arange(4.0) + (info.id if info else 0))


def keep(batch: Any) -> Any:
    return batch


def run(loader: Any) -> float:
    # Unreachable iterators that a worker inherits print from their `__del__` there.
    gc.collect()
    return sum(float(batch.sum()) for batch in loader)


def loaders() -> None:
    """Batches, their order, and a worker's exception as main prints it."""
    options: dict[str, Any] = {"multiprocessing_context": "fork", "num_workers": 2}
    attempt(run, DataLoader(Numbers(), batch_size=2, **options))
    attempt(run, DataLoader(Numbers("fails"), **options))
    attempt(run, DataLoader(Stream(), **options))
    attempt(run, DataLoader(Numbers("does not pickle"), collate_fn=keep, timeout=3, **options))
    attempt(run, DataLoader(Numbers("sleeps"), timeout=2, **options))
    torch.manual_seed(5)
    shuffled = DataLoader(Numbers(), shuffle=True, persistent_workers=True, **options)
    for _ in range(2):
        say([int(batch[0, 0]) for batch in shuffled])
    iterator = iter(shuffled)
    next(iterator)
    del iterator, shuffled


def carried() -> None:
    """The same where the hook is passed to the worker in its preparation data."""
    for method in ("spawn", "forkserver"):
        attempt(run, DataLoader(Numbers("fails"), num_workers=1, multiprocessing_context=method))


def warned() -> None:
    """Warnings have the same lines."""
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, [min(cpus)])  # two workers are too many for one cpu
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(DataLoader(Numbers(), num_workers=2, multiprocessing_context="fork", batch_size=8))
        torch.tensor([1.0]).storage()
    os.sched_setaffinity(0, cpus)
    for warning in caught:
        if warning.category is not DeprecationWarning:
            say(warning.category, os.path.basename(warning.filename), warning.lineno)


def worker_deaths() -> None:
    """Workers that are killed: torch's handler of SIGCHLD raises at any line of main."""
    for what in ("dies", "exits"):
        # The first sample, so that no batch of an exited sender is in flight.
        loader = DataLoader(Numbers(what, 0), num_workers=1, multiprocessing_context="fork")
        try:
            run(loader)
        except RuntimeError as error:
            say(error)


def sharing() -> None:
    """Tensors that are received too late, twice, empty, or from an exited process."""
    for strategy in ("file_descriptor", "file_system"):
        torch.multiprocessing.set_sharing_strategy(strategy)
        context = torch.multiprocessing.get_context("fork")
        fifo = context.SimpleQueue()
        for tensor in (torch.ones(3), torch.empty(0), torch.nn.Parameter(torch.ones(2))):
            fifo.put(tensor)
            fifo.put(tensor)
            same, again = fifo.get(), fifo.get()
            say(same, type(same), same.data_ptr() == again.data_ptr(), same.is_shared())
        view = torch.arange(10.0)[2:5]
        fifo.put((view, view.untyped_storage()))
        say(*fifo.get())
        late = context.Queue()
        child = context.Process(target=leave, args=(late,))
        child.start()
        child.join()
        if strategy == "file_descriptor":
            attempt(late.get)
        attempt(fifo.put, torch.ones(2, requires_grad=True) * 2)
        attempt(fifo.put, torch.ones(2).to_sparse())
        say(fifo.get())
    attempt(torch.multiprocessing.set_sharing_strategy, "pigeons")
    attempt(torch.multiprocessing.spawn, stumble, (), 2)


def leave(fifo: Any) -> None:
    fifo.put(torch.ones(3))


def stumble(rank: int) -> None:
    if rank == 0:
        raise ValueError("rank 0 stumbles")
    time.sleep(20)


def interrupted() -> None:
    """A handler raises while main waits for a batch; the next pass over the loader is complete."""
    signal.signal(signal.SIGALRM, on_alarm)
    loader = DataLoader(Numbers("sleeps", 1), num_workers=1, multiprocessing_context="fork")
    try:
        signal.setitimer(signal.ITIMER_REAL, 2)
        run(loader)
    except Alarm as error:
        say(type(error), error, error.__context__)
    attempt(run, DataLoader(Numbers(), num_workers=1, multiprocessing_context="fork"))


def main() -> None:
    has_hook, *cases = sys.argv[1:]
    gc.freeze()  # a collection in a forked process would copy the pages of all objects of torch
    if has_hook == "with":
        import mpwatch

        assert mpwatch.instrument()
    for case in cases:
        say("case", case)
        globals()[case]()


if __name__ == "__main__":
    main()
