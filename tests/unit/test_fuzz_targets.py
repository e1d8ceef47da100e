"""The targets of `tests.endurance.fuzz` read their samples, whole and cut anywhere."""

from __future__ import annotations

import pytest

from tests.endurance.fuzz import NAMES
from tests.endurance.fuzz_targets import TARGETS


def test_every_target_can_be_named() -> None:
    assert set(NAMES) == set(TARGETS)


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_that_is_cut_is_read_or_refused(name: str) -> None:
    target = TARGETS[name]
    for sample in target.samples():
        for end in {0, 1, len(sample) // 3, len(sample) // 2, len(sample) - 1, len(sample)}:
            target.read(sample[:end])
