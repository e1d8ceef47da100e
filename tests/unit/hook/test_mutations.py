from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutations.mutation import Mutation, mutate
from tests.mutations.table import INVARIANTS, TABLE

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("mutation", TABLE, ids=lambda each: each.what)
def test_what_a_mutation_replaces_is_there_and_what_it_makes_is_python(mutation: Mutation) -> None:
    text = (ROOT / mutation.file).read_text(encoding="utf-8")

    compile(mutate(text, mutation), mutation.file, "exec")


def test_every_mutation_names_tests_that_exist() -> None:
    for mutation in TABLE:
        for test in mutation.tests:
            file, _, name = test.partition("::")
            assert f"def {name.partition('[')[0]}" in (ROOT / file).read_text(encoding="utf-8")


def test_every_invariant_is_broken_in_several_ways() -> None:
    counts = {number: sum(each.invariant == number for each in TABLE) for number in INVARIANTS}

    assert min(counts.values()) >= 2
