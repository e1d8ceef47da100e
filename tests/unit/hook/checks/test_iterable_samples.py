from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from mpwatch.hook.checks.iterable_samples import FirstSamples
from mpwatch.hook.session import Session

numpy = pytest.importorskip("numpy")
pytestmark = pytest.mark.xdist_group("torch")


def parts(session: Session, *batches: Any) -> dict[str, list[Any]]:
    head, worker = FirstSamples(), SimpleNamespace(number=1, loader=7)
    for batch in batches:
        head.take(session, worker, object(), batch)
    notes = [json.loads(note[1]) for note in session.notes.since(0)]
    made = [note for note in notes if note["kind"] == "first-samples"]
    return dict(made[-1]["parts"]) if made else {}


def test_tensors_arrays_and_texts_are_compared_by_value(session: Session, torch: Any) -> None:
    first = {"id": torch.arange(8), "path": ["a", "b"], "image": numpy.zeros((8, 4))}
    second = {"id": torch.arange(8, 16), "path": ["c", "d"], "image": numpy.ones((8, 4))}

    found = parts(session, first, second)

    assert found["['id']"][1:] == [16, 16]
    assert found["['path']"][1:] == [4, 4]
    assert found["['image']"][1:] == [64, 2]
    assert found == parts(session, first, second)
    assert found["['id']"][0] != parts(session, second, first)["['id']"][0]


def test_one_batch_proves_nothing_yet(session: Session, torch: Any) -> None:
    assert parts(session, [torch.arange(8)]) == {}


def test_objects_of_the_program_are_not_examined(session: Session, torch: Any) -> None:
    class Own(torch.Tensor):  # type: ignore[misc]
        pass

    batch = [torch.arange(8).as_subclass(Own), object(), torch.eye(4).t()[1:]]

    assert parts(session, batch, batch) == {}


def test_a_tensor_under_a_mode_of_the_program_is_not_examined(session: Session, torch: Any) -> None:
    heard = []

    class Mode(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, *rest: Any) -> Any:
            heard.append(function)

    with Mode():
        assert parts(session, [torch.tensor], [torch.tensor]) == {}
        head = FirstSamples()
        head.take(session, SimpleNamespace(number=1, loader=7), object(), [numpy.arange(3)])
    assert heard == []
