"""Mistakes with objects that are passed to processes: `hook_shared_parameters.py MISTAKE...`.

Each mistake is made in a forked process of its own, in which the hook is attached: so torch is
loaded once.
"""

from __future__ import annotations

import fcntl
import functools
import gc
import os
import sys
import types
from typing import Any

import torch
import torch.multiprocessing as mp
from torch import nn

import mpwatch

METHOD = "fork"


class Samples:
    def __init__(self, count: int) -> None:
        self.name = "samples"
        self.samples = [torch.zeros(1) for _ in range(count)]


class Both:
    """A tensor and a view of it."""

    def __init__(self) -> None:
        self.tensor = torch.zeros(1000)
        self.array = self.tensor.numpy()


def nothing(*_: Any) -> None:
    return None


def train(model: nn.Module, barrier: Any, change: bool = False, *_: Any) -> None:
    """Step an optimizer once while all processes run, and print what the hook noted."""
    torch.set_num_threads(1)
    if change:
        model.double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    barrier.wait(60)
    model(torch.ones(2, 4, dtype=next(model.parameters()).dtype)).sum().backward()
    optimizer.step()
    show()


def train_in(count: int, model: nn.Module, *more: Any) -> None:
    """Pass a model to several processes that run at the same time."""
    context = mp.get_context(METHOD)
    barrier = context.Barrier(count)
    children = [context.Process(target=train, args=(model, barrier, *more)) for _ in range(count)]
    for child in children:
        child.start()
    for child in children:
        child.join()


class Trainer(mp.get_context(METHOD).Process):  # type: ignore[misc]
    """A process that keeps what it needs on itself."""

    def __init__(self, model: nn.Module, barrier: Any, *more: Any) -> None:
        super().__init__()
        self.model, self.barrier, self.more = model, barrier, more

    def run(self) -> None:
        train(self.model, self.barrier, *self.more)


class Team:
    """Its method is the target of processes."""

    def __init__(self, model: nn.Module, barrier: Any) -> None:
        self.model, self.barrier = model, barrier

    def work(self, change: bool = False) -> None:
        train(self.model, self.barrier, change)


def run_all(*children: Any) -> None:
    for child in children:
        child.start()
    for child in children:
        child.join()


def on_self(*more: Any, is_shared: bool = False) -> None:
    model, barrier = nn.Linear(4, 2), mp.get_context(METHOD).Barrier(2)
    if is_shared:
        model.share_memory()
    run_all(Trainer(model, barrier, *more), Trainer(model, barrier, *more))


def on_self_shared() -> None:
    on_self(is_shared=True)


def on_self_undone() -> None:
    on_self(True, is_shared=True)


def on_self_with_a_way_back() -> None:
    on_self(False, mp.get_context(METHOD).SimpleQueue())


def by_a_method() -> None:
    context = mp.get_context(METHOD)
    team = Team(nn.Linear(4, 2), context.Barrier(2))
    run_all(context.Process(target=team.work), context.Process(target=team.work))


def by_a_partial() -> None:
    context = mp.get_context(METHOD)
    work = functools.partial(train, nn.Linear(4, 2), context.Barrier(2))
    run_all(context.Process(target=work), context.Process(target=work))


def by_a_method_with_a_way_back() -> None:
    context = mp.get_context(METHOD)
    team = Team(nn.Linear(4, 2), context.Barrier(2))
    team.results = context.SimpleQueue()  # type: ignore[attr-defined]
    run_all(context.Process(target=team.work), context.Process(target=team.work))


def never() -> None:
    train_in(2, nn.Linear(4, 2))


def undone() -> None:
    train_in(2, nn.Linear(4, 2).share_memory(), True)


def shared() -> None:
    train_in(2, nn.Linear(4, 2).share_memory())


def with_a_way_back() -> None:
    train_in(2, nn.Linear(4, 2), False, mp.get_context(METHOD).SimpleQueue())


def one_after_another() -> None:
    model = nn.Linear(4, 2)
    for _ in range(2):
        train_in(1, model)


def many() -> None:
    dataset = {"train": Samples(300), "size": 300}
    context = mp.get_context("forkserver")
    context.set_forkserver_preload([])  # it starts no child, and would import torch for none
    child = context.Process(target=nothing, args=(1, dataset))
    try:
        child.start()
    except ValueError as error:
        print("error", error)
    show()


def few() -> None:
    child = mp.get_context("spawn").Process(target=nothing, args=(Samples(20),))
    child.start()
    child.join()
    show()


def start_with(*arguments: Any) -> None:
    child = mp.get_context(METHOD).Process(target=nothing, args=arguments)
    child.start()
    child.join()
    show()


def view_in_an_argument() -> None:
    both = Both()
    both.tensor.share_memory_()
    start_with(both)


def view_in_a_variable() -> None:
    array = torch.ones(8)
    view = array.numpy()
    array.share_memory_()
    start_with(array)
    assert view is not None


def view_taken_afterwards() -> None:
    tensor = torch.ones(8).share_memory_()
    other = torch.zeros(3)
    start_with(tensor, tensor.numpy(), other, other.numpy())


def view_of_what_stays() -> None:
    """Share a tensor whose view was freed before, and keep a view of another tensor."""
    moved, kept = torch.ones(8), torch.zeros(8)
    moved.numpy()
    moved.share_memory_()
    start_with(moved, kept, kept.numpy())


def show() -> None:
    from mpwatch.hook import current

    session = current()
    assert session is not None
    lines = ["note " + note.decode() for _, note in session.notes.since(0)]
    lines.append(f"missing {session.patcher.missing} {session.problems}")
    # Several processes write to the same pipe, and only 4 KiB at once go in as one piece.
    with open(__file__, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        os.write(1, "".join(f"{line}\n" for line in lines).encode())


def without_dynamo() -> None:
    """Spare optimizers the import of torch._dynamo, 10 s of cpu: nothing is compiled here.

    They take two functions from it, which do nothing unless something is being compiled.
    """
    stand_in = types.ModuleType("torch._dynamo")
    vars(stand_in).update(disable=lambda function, *_, **__: function, graph_break=nothing)
    sys.modules[stand_in.__name__] = stand_in


def make(mistake: str) -> int:
    """Make one mistake in a process of its own, and return its exit code."""
    print(f"mistake {mistake}", flush=True)
    pid = os.fork()
    if pid == 0:
        mpwatch.instrument()
        globals()[mistake]()
        sys.exit()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    without_dynamo()
    gc.freeze()  # a collection in a forked process would copy the pages of all objects of torch
    for name in sys.argv[1:]:
        if make(name) != 0:
            sys.exit(f"{name} failed")
