"""Compares the objects that the hook replaces before it is attached and after it is detached."""

from __future__ import annotations

import concurrent.futures.process
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.pool
import multiprocessing.spawn
import os
import threading
from typing import Any

import torch
import torch.distributed
import torch.multiprocessing
import torch.utils.data

import mpwatch

HOLDERS: tuple[Any, ...] = (
    multiprocessing,
    multiprocessing.context.DefaultContext,
    multiprocessing.forkserver,
    multiprocessing.process.BaseProcess,
    multiprocessing.reduction,
    multiprocessing.resource_sharer,
    multiprocessing.spawn,
    concurrent.futures.process,
    os,
    threading,
    torch.distributed.rendezvous,
    torch.multiprocessing,
    torch.multiprocessing.reductions,
    torch.storage.TypedStorage,
    torch.storage.UntypedStorage,
)


def main() -> None:
    before = [dict(vars(holder)) for holder in HOLDERS]
    calls = list(threading._threading_atexits)  # type: ignore[attr-defined]
    mpwatch.instrument()
    during = [dict(vars(holder)) for holder in HOLDERS]
    from mpwatch.hook import current

    session = current()
    assert session is not None
    print("missing", session.patcher.missing)
    mpwatch.uninstrument()
    print("changed", during != before)
    for holder, old in zip(HOLDERS, before, strict=True):
        for name, value in vars(holder).items():
            if name not in old or old[name] is not value:
                print("left", holder.__name__, name)
    print("calls", threading._threading_atexits == calls)  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
