"""Labels and order of findings."""

from __future__ import annotations

from msgspec.structs import replace

from mpwatch.describe.findings import effects_below_causes, labelled_fields, subject_of
from tests.builders.report_job import MAIN, finding, job


def rules(*effects: tuple[str, str | None]) -> list[str]:
    """The order of findings that are given by their rule and the rule of their cause."""
    found = [replace(finding(), rule=rule, effect_of=cause) for rule, cause in effects]
    return [each.rule for each in effects_below_causes(found)]


def test_an_effect_is_below_its_cause() -> None:
    assert rules(("effect", "cause"), ("other", None), ("cause", None)) == [
        *("other", "cause", "effect"),
    ]


def test_the_effect_of_an_effect_is_below_it() -> None:
    assert rules(("third", "second"), ("second", "first"), ("first", None)) == [
        *("first", "second", "third"),
    ]


def test_an_effect_without_its_cause_keeps_its_place() -> None:
    assert rules(("one", None), ("effect", "not found"), ("two", None)) == ["one", "effect", "two"]


def test_findings_that_cause_each_other_appear_once_each() -> None:
    assert rules(("one", "two"), ("two", "one"), ("self", "self")) == ["one", "two", "self"]


def test_fields_without_text_have_no_label() -> None:
    bare = replace(finding(), evidence=("642 of 1024 fds",), cause="")

    assert [label for label, _ in labelled_fields(bare)] == ["evidence", "fix"]


def test_the_subject_names_a_thread_only_if_it_is_not_the_main_thread() -> None:
    main, helper = replace(finding(), tid=MAIN.pid), replace(finding(), tid=41999)

    assert subject_of(main, job()) == "main (41823)"
    assert subject_of(helper, job()) == "main (41823) thread 41999"
    assert subject_of(replace(finding(), process=None), job()) == "the whole job"
