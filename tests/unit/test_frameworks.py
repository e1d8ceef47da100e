"""What `python -m tests.frameworks` counts as named, as clean and as the same result."""

from __future__ import annotations

import re

import pytest

from mpwatch.model.findings import Finding, Severity
from tests.builders.snapshots import main, process, snapshot_of
from tests.frameworks.__main__ import Row, is_wrong, markdown
from tests.frameworks.catalogue import FRAMEWORKS, PROGRAMS, Failure, at, named, says_all
from tests.frameworks.trial import Named, Seen, environment, results, summary

FAILURE = Failure("worker 1 waits", "a/b#1", (r"worker 1\b", r"recv"))


def finding(text: str, severity: Severity = Severity.CRITICAL) -> Finding:
    return Finding("a-rule", severity, text, ("seen",), "because of recv", "do this")


def test_all_programs_of_the_catalogue_exist() -> None:
    paths = {
        part.format(PROGRAMS) for each in FRAMEWORKS for part in each.arguments if "{}" in part
    }

    programs = {*map(str, PROGRAMS.glob("*/*.py"))}

    assert {path for path in programs if not path.endswith(("__init__.py", "work.py"))} == paths


def test_each_framework_can_be_found_by_its_name() -> None:
    assert [named(each.name) for each in FRAMEWORKS] == list(FRAMEWORKS)


def test_a_line_at_fault_is_found_by_its_text_and_must_be_the_only_one() -> None:
    expression = at("ranks/with_accelerate.py", "gather_object([")
    (number,) = (
        number
        for number, line in enumerate(
            (PROGRAMS / "ranks" / "with_accelerate.py").read_text().splitlines(), 1
        )
        if "print(gather_object(" in line
    )

    assert re.search(expression, f"rank 0 waits at with_accelerate.py:{number} main")
    assert not re.search(expression, f"rank 0 waits at with_accelerate.py:{number}0 main")
    with pytest.raises(ValueError, match="too many"):
        at("ranks/with_accelerate.py", "import")


def test_a_failure_is_named_by_all_that_is_expected_in_any_field() -> None:
    assert says_all("worker 1 waits\nrecv", FAILURE)
    assert not says_all("worker 11 waits\nrecv", FAILURE)
    assert not says_all("worker 1 waits", FAILURE)


def test_a_failure_is_named_from_when_on_its_finding_stays_the_first() -> None:
    seen = Named(FAILURE)
    right, other = finding("worker 1 waits"), finding("main waits")

    seen.add(snapshot_of(main(), findings=(right, other)))
    moments = [seen.since_s]
    firsts = []
    for findings in (right,), (other, right), (finding("main sleeps", Severity.INFO),):
        seen.add(snapshot_of(main(), findings=findings))
        moments.append(seen.since_s)
        firsts.append(seen.first)

    assert moments[0] is not None
    assert moments == [moments[0], moments[0], None, None]
    assert firsts[1:] == ["critical: main waits", "info: main sleeps"]


def test_warnings_at_any_moment_are_alarms_and_the_most_processes_are_shown() -> None:
    seen = Seen()
    workers = [process(200 + n, label=f"worker {n}") for n in range(3)]

    seen.add(snapshot_of(main(), findings=(finding("slow", Severity.WARNING),)))
    seen.add(snapshot_of(main(), *workers, findings=(finding("a remark", Severity.INFO),)))
    seen.add(snapshot_of(main()))

    assert seen.alarms == {"a-rule: slow"}
    assert seen.roles == "main, worker 0 to 2"
    assert seen.hook == "0 of 4"


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["main", "spawned", "spawned"], "main, 2 spawned"),
        (["main", "rank 1"], "main, rank 1"),
        (["rank 0", "rank 1", "worker 0", "worker 0"], "rank 0 to 1, worker 0, 0"),
    ],
)
def test_processes_are_summed_up_by_label(labels: list[str], words: str) -> None:
    assert summary([process(200 + n, label=label) for n, label in enumerate(labels)]) == words


def test_output_of_the_programs_is_buffered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")

    assert "PYTHONUNBUFFERED" not in environment("/tmp/x")


def test_only_result_lines_are_compared_in_any_order() -> None:
    assert results(["took 3 s", "result 1", "result 0"]) == ["result 0", "result 1"]


def test_the_table_says_what_was_not_tried_and_what_is_wrong() -> None:
    good: Row = {
        "version": "joblib 1.6", "roles": "main", "hook": "1 of 1", "is_same": True, "alarms": [],
        "named_s": 3.4, "first": "x",
    }  # fmt: skip
    missed: Row = {"version": "loky 3", "named_s": None, "first": "other"}
    absent: Row = {"obstacle": "ray is not installed"}
    rows = {"joblib": good, "Ray actors": absent, "loky": missed}

    text = markdown(rows)

    assert "| joblib (joblib 1.6) | main | 1 of 1 | yes | yes |" in text
    assert text.splitlines()[2].endswith("| 3 s |")
    assert "not tried: ray is not installed" in text
    assert text.splitlines()[3].endswith("| not named |")
    assert (is_wrong(good), is_wrong(missed)) == (False, True)
    assert is_wrong({**good, "alarms": ["a-rule: slow"]})
    assert not is_wrong(absent)
