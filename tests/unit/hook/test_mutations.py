from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutations.mutation import Mutation, mutate
from tests.mutations.table import INVARIANTS, TABLE

ROOT = Path(__file__).parents[3]
SOURCE = """
class Queue:
    def put(self, item):
        if item is None:  # the end
            self.close(
                item,
            )
            return 1
        return 2

    def close(self, item):
        return 1
"""


def change(function: str, before: str, after: str) -> Mutation:
    return Mutation(1, "", "queue.py", function, before, after, ())


@pytest.mark.parametrize("mutation", TABLE, ids=lambda each: each.what)
def test_a_mutation_finds_its_code_and_makes_python(mutation: Mutation) -> None:
    text = (ROOT / mutation.file).read_text(encoding="utf-8")

    mutated = mutate(text, mutation)

    compile(mutated, mutation.file, "exec")
    assert mutated != text


def test_every_mutation_names_tests_that_exist() -> None:
    for mutation in TABLE:
        for test in mutation.tests:
            file, _, name = test.partition("::")
            assert f"def {name.partition('[')[0]}" in (ROOT / file).read_text(encoding="utf-8")


def test_every_invariant_is_broken_in_several_ways() -> None:
    counts = {number: sum(each.invariant == number for each in TABLE) for number in INVARIANTS}

    assert min(counts.values()) >= 2


def test_statements_are_found_in_their_function_however_they_are_formatted() -> None:
    mutated = mutate(
        SOURCE, change("Queue.put", "self.close(item)\nreturn 1", "item = 1\nreturn 3")
    )

    assert mutated == SOURCE.replace(
        "            self.close(\n                item,\n            )\n            return 1\n",
        "            item = 1\n            return 3\n",
    )


def test_an_expression_is_replaced_and_a_statement_removed() -> None:
    replaced = mutate(SOURCE, change("Queue.put", "item is None", "True"))
    removed = mutate(SOURCE, change("Queue.close", "return 1", ""))

    assert replaced == SOURCE.replace("item is None", "True")
    assert removed == SOURCE.replace("item):\n        return 1", "item):\n        pass")


@pytest.mark.parametrize(
    ("function", "before"),
    [
        ("Queue.put", "item"),
        ("Queue.put", "return 5"),
        ("Queue.take", "return 1"),
        ("", "return 1"),
    ],
)
def test_code_that_is_absent_or_ambiguous_is_an_error(function: str, before: str) -> None:
    with pytest.raises(LookupError):
        mutate(SOURCE, change(function, before, "pass"))
