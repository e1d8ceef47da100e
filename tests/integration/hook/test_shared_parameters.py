from __future__ import annotations

import functools
import json
import subprocess
import sys
from typing import Any

import pytest

from tests.conftest import PROGRAMS

# One worker of xdist runs all of them, because one program makes all mistakes.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("handed"),
    pytest.mark.timeout(600),  # the run takes 30 s of cpu
]

TRAINED_APART = ("on_self", "by_a_method", "by_a_partial")
TRAINED_WELL = (
    "shared",
    "with_a_way_back",
    "one_after_another",
    "on_self_shared",
    "on_self_with_a_way_back",
    "by_a_method_with_a_way_back",
)
VIEWS_LEFT_ALONE = ("view_taken_afterwards", "view_of_what_stays")
MISTAKES = (
    *("never", *TRAINED_APART, "on_self_undone", "undone", "many", "few", *TRAINED_WELL),
    *("view_in_an_argument", "view_in_a_variable", *VIEWS_LEFT_ALONE),
)


@functools.cache
def lines_of_all() -> dict[str, list[str]]:
    """The output of the program about each mistake."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(PROGRAMS / "hook_shared_parameters.py"), *MISTAKES],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
        check=True,
    )
    parts = done.stdout.split("mistake ")[1:]
    return {part.split("\n", 1)[0]: part.splitlines()[1:] for part in parts}


def notes_of(mistake: str, kind: str) -> list[dict[str, Any]]:
    """The notes of a kind that a mistake produces in any process of the program."""
    lines = lines_of_all()[mistake]
    assert "missing {} []" in lines
    notes = [json.loads(line[5:]) for line in lines if line.startswith("note ")]
    return [note for note in notes if note["kind"] == kind]


def test_a_model_that_several_processes_train_each_for_itself_is_named() -> None:
    notes = notes_of("never", "parameters-not-shared")

    # The first process cannot know the second.
    assert [(note["what"], note["how"], note["processes"]) for note in notes] == [
        ("weight, bias", "never", 2)
    ]
    assert "train" in [frame[0] for frame in notes[0]["frames"]]


@pytest.mark.parametrize("way", TRAINED_APART)
def test_a_model_that_is_not_an_argument_is_found(way: str) -> None:
    notes = notes_of(way, "parameters-not-shared")

    assert [(note["what"], note["how"], note["processes"]) for note in notes] == [
        ("weight, bias", "never", 2)
    ]


def test_parameters_on_self_whose_sharing_was_undone_are_named_by_each() -> None:
    notes = notes_of("on_self_undone", "parameters-not-shared")

    assert [(note["what"], note["how"]) for note in notes] == [("weight, bias", "undone")] * 2


def test_parameters_whose_sharing_was_undone_in_the_child_are_named_by_each() -> None:
    notes = notes_of("undone", "parameters-not-shared")

    assert [(note["what"], note["how"]) for note in notes] == [("weight, bias", "undone")] * 2


@pytest.mark.parametrize("healthy", TRAINED_WELL)
def test_models_that_are_shared_or_sent_back_or_trained_in_turn_are_not_noted(
    healthy: str,
) -> None:
    assert notes_of(healthy, "parameters-not-shared") == []


def test_the_attribute_that_holds_too_many_storages_is_named_with_the_failure() -> None:
    notes = notes_of("many", "exception")

    assert [(note["text"], note["storages"], note["path"]) for note in notes] == [
        ("too many fds", 300, "._args[1]['train'].samples")
    ]
    assert notes[0]["site"].startswith("hook_shared_parameters.py:")


def test_few_storages_are_not_worth_a_note() -> None:
    assert notes_of("few", "many-storages") == []


def test_an_array_left_behind_by_a_shared_tensor_is_named_with_its_path() -> None:
    notes = notes_of("view_in_an_argument", "dangling-view")

    # Where variables can be read it is found there as well.
    found = {note["path"]: (note["shape"], note["dtype"]) for note in notes}
    assert found["._args[0].array"] == ([1000], "float32")


@pytest.mark.skipif(sys.version_info < (3, 13), reason="variables cannot be read unnoticed")
def test_an_array_left_behind_is_found_in_a_variable() -> None:
    assert [note["path"] for note in notes_of("view_in_a_variable", "dangling-view")] == ["view"]


@pytest.mark.parametrize("healthy", VIEWS_LEFT_ALONE)
def test_arrays_over_the_memory_of_their_tensor_are_not_noted(healthy: str) -> None:
    assert notes_of(healthy, "dangling-view") == []
