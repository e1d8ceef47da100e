from __future__ import annotations

import multiprocessing
from typing import Any

import pytest

from mpwatch.hook import checks

pytestmark = pytest.mark.xdist_group("torch")


def test_processes_that_were_freed_are_not_remembered(torch: Any) -> None:
    found = checks.load("shared_parameters").SharedParameters(lambda *_, **__: None)
    model = torch.nn.Linear(1, 1)
    context = multiprocessing.get_context("fork")
    kept = [context.Process(target=print, args=(model,)) for _ in range(3)]
    for process in kept:
        found.start(process, "print")

    for _ in range(200):
        found.start(context.Process(target=print, args=(model,)), "print")

    ((_, _, processes),) = found._given.values()
    assert len(processes) <= len(kept) + 2
    assert {id(each()) for each in processes} >= {id(each) for each in kept}
