from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.exits.kinds import EXCEPTIONS_SHOWN, WORDS_LIMIT
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Ended
from mpwatch.model.snapshot import LogEntry, Snapshot
from mpwatch.report.json import diagnose_json, text_of
from mpwatch.report.text import diagnose_text
from tests.builders.report_job import MAIN, WORKER, job


def raised(process: ProcessId, error: str, number: int = 0) -> LogEntry:
    frames = [["decode", "/home/ada/data.py", 31]]
    words = f"exception: {error}"
    details = {"type": error, "frames": frames}
    return LogEntry(number, 500.0, 1.8e9, "exception", process, words, details)


def over(**how: Any) -> Snapshot:
    """The job after its main process ended, with the events of the hooks."""
    snapshot = job()
    processes = tuple(
        replace(each, ended=Ended(MAIN, 501.0, **how)) if each.process == MAIN else each
        for each in snapshot.processes
    )
    log = (raised(WORKER, "KeyError"), raised(MAIN, "KeyError"), raised(MAIN, "KeyError", 2))
    return replace(snapshot, processes=processes, findings=(), log=log)


def end_of(snapshot: Snapshot) -> list[str]:
    text = diagnose_text(snapshot)
    return text.partition("\nENDED")[2].partition("\n\n")[0].splitlines()[1:]


def test_a_failed_job_shows_exit_status_and_exceptions() -> None:
    assert end_of(over(exit_code=1)) == [
        f"  main ({MAIN.pid}) ended: exit code 1",
        "  worker 1 (41827) ended: signal 9 (SIGKILL)",
        f"  worker 0 ({WORKER.pid}): exception: KeyError  at data.py:31 decode",
        f"  main ({MAIN.pid}): exception: KeyError  at data.py:31 decode",
    ]


def test_json_has_the_same() -> None:
    read = json.loads(text_of(diagnose_json(over(signal=9))))

    assert read["ended"][0] == {"pid": MAIN.pid, "words": "signal 9 (SIGKILL)"}
    assert [each["pid"] for each in read["last_words"]] == [WORKER.pid, MAIN.pid]
    assert read["last_words"][0]["place"] == "data.py:31 decode"


@pytest.mark.parametrize("snapshot", [job(), over(exit_code=0)])
def test_a_running_or_successful_job_has_no_such_section(snapshot: Snapshot) -> None:
    assert end_of(snapshot) == []
    assert json.loads(text_of(diagnose_json(snapshot)))["ended"] == []


def test_a_long_text_is_cut() -> None:
    snapshot = replace(over(exit_code=1), log=(raised(MAIN, "x" * 5000),))

    (shown,) = json.loads(text_of(diagnose_json(snapshot)))["last_words"]

    assert len(shown["words"]) == WORDS_LIMIT
    assert shown["words"].endswith("…")


def test_only_the_last_exceptions_are_shown() -> None:
    snapshot = replace(over(exit_code=1), log=tuple(raised(MAIN, f"Error{n}", n) for n in range(9)))

    shown = [line for line in end_of(snapshot) if "exception" in line]

    assert len(shown) == EXCEPTIONS_SHOWN
    assert "Error8" in shown[-1]
