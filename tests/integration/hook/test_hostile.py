"""The program's objects are used by the hook exactly as often as without it: never."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.integration.hook.test_sameness import outcome

pytestmark = pytest.mark.slow

CASES = ("queues", "starting", "pools", "failures", "loaders")


@pytest.mark.parametrize("case", CASES)
def test_methods_of_a_programs_objects_are_called_as_often_as_without_the_hook(case: str) -> None:
    without, with_hook = (
        outcome(Path(sys.executable), "hook_hostile.py", has_hook, [case])
        for has_hook in ("without", "with")
    )

    assert with_hook == without
    # The program has reached its end, and has counted.
    code, said = without
    assert code == 0
    assert said.endswith("done\n")
    # In the workers of a DataLoader nothing is called at all.
    assert ("[('" in said) is (case != "loaders")
