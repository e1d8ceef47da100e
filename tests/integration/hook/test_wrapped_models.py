"""Models of DistributedDataParallel: what the hook reads of them, in a process of real torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
import gc, json, sys
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

import mpwatch
from mpwatch.hook import current

made, taken = DDP.__init__, __import__("inspect").signature(DDP)
assert mpwatch.instrument()
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
told = []

def look():
    told.append(current().gauges["collectives"]().get("models", []))

look()
model = DDP(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def steps(module):
    for _ in range(5):
        optimizer.zero_grad()
        module(torch.ones(3, 4)).sum().backward()
        optimizer.step()

look()
steps(model.module)
look()
steps(model)
look()
with model.no_sync():
    look()
    steps(model)
    look()
model.register_comm_hook(None, lambda state, bucket: torch.futures.Future())
look()
assert __import__("inspect").signature(DDP) == taken
try:
    DDP(torch.nn.ReLU())
except RuntimeError as error:
    told.append(str(error)[:42])
del model, optimizer
gc.collect()
look()
assert mpwatch.uninstrument()
assert DDP.__init__ is made
print(json.dumps(told))
"""


def test_wrapped_models_are_reported_by_whether_their_gradients_are_reduced(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "store")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr

    told: list[Any] = json.loads(done.stdout)

    def state(number: int) -> tuple[object, ...]:
        (model,) = told[number]
        names = ("is_forward_run", "is_reducing", "has_own_hook", "updates")
        return tuple(model[name] for name in names)

    assert told[0] == []
    assert [state(number) for number in range(1, 7)] == [
        (False, True, False, 0),
        (False, True, False, 5),
        (True, True, False, 0),
        (True, False, False, 0),
        (True, False, False, 5),
        (True, True, True, 0),
    ]
    assert told[7].startswith("DistributedDataParallel is not needed")
    assert told[8] == [], "a model that the program has dropped is not kept"
