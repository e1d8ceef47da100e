from __future__ import annotations

from typing import Any

import pytest

from mpwatch.hook.checks import object_walk

pytestmark = pytest.mark.xdist_group("torch")


class Parts:
    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)


class Trap(dict[str, Any]):
    def items(self) -> Any:
        raise AssertionError("the program's code ran")

    @property
    def cost(self) -> Any:
        raise AssertionError("the program's code ran")


def test_the_part_that_holds_nearly_all_tensors_is_named_with_their_number(torch: Any) -> None:
    samples = [torch.zeros(1) for _ in range(300)]
    dataset = Parts(name="a", model=torch.zeros(2), data=Parts(samples=samples, other=[1, 2]))

    assert object_walk.heaviest((1, dataset)) == ("[1].data.samples", 300)


def test_tensors_of_many_small_members_count_for_what_contains_them(torch: Any) -> None:
    rows = [{"x": torch.zeros(1), "y": torch.zeros(1)} for _ in range(200)]

    assert object_walk.heaviest(Parts(rows=rows)) == (".rows", 400)


def test_an_object_without_tensors_is_heaviest_itself() -> None:
    assert object_walk.heaviest(Parts(a=[1, 2, 3])) == ("", 0)


def test_a_walk_runs_no_code_of_the_program(torch: Any) -> None:
    tensor = torch.zeros(1)
    found = dict(object_walk.walk(Parts(trap=Trap(x=tensor))))

    assert found[".trap['x']"] is tensor


def test_an_object_that_contains_itself_is_examined_once(torch: Any) -> None:
    ring: list[Any] = [torch.zeros(1)]
    ring.append(ring)

    assert [path for path, _ in object_walk.walk(Parts(ring=ring))] == [".ring", ".ring[0]"]


def test_a_walk_over_a_huge_container_is_bounded() -> None:
    assert len(list(object_walk.walk([[n] for n in range(100_000)]))) == object_walk.SAMPLE


def test_parameters_have_their_dotted_names(torch: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3))

    paths = [path for path, part in object_walk.walk((model,)) if object_walk.is_tensor(part)]

    assert paths == ["[0].0.weight", "[0].0.bias"]
