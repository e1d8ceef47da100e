"""Rules are functions of their index: the order, the run and the process make no difference."""

from __future__ import annotations

import inspect
import json
import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TypeAlias

import pytest
from msgspec.structs import replace

from mpwatch.collect.process.py_spy import parse_dump
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.engine import RULES, Engine, Rule
from mpwatch.model.findings import Finding
from mpwatch.model.history import History
from mpwatch.model.snapshot import Process, Snapshot, Thread
from mpwatch.observe.recording.file import Recording
from mpwatch.observe.state.fold import Fold
from tests.builders.snapshots import checked_snapshots
from tests.integration import on_demand
from tests.unit.diagnose import rules as tests_of_rules

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("purity")]  # one worker builds the cases

Case: TypeAlias = tuple[Snapshot, History]
Findings: TypeAlias = dict[str, list[Finding]]
DATA = Path(__file__).parents[2] / "data"
OF_A_KIND = 1_000_000 if on_demand.IS_SET else 4
ANOTHER_PROCESS = """
import pickle, sys
from tests.unit.diagnose.test_purity import findings_of, RULES
with open(sys.argv[1], "rb") as file:
    cases = pickle.load(file)
sys.stdout.buffer.write(pickle.dumps([findings_of(each, RULES[::-1]) for each in cases[::-1]]))
"""


def cases() -> Iterator[Case]:
    """The snapshots of all tests of rules without parameters, and a recording at several points."""
    with checked_snapshots() as seen:
        for found in iter_modules(tests_of_rules.__path__, f"{tests_of_rules.__name__}."):
            for name, test in inspect.getmembers(import_module(found.name), inspect.isfunction):
                if name.startswith("test_") and not inspect.signature(test).parameters:
                    test()
    yield from seen
    for path in sorted(DATA.glob("recording-*.mpw")):
        yield from cases_of_recording(str(path))


def cases_of_recording(path: str) -> Iterator[Case]:
    """The end of a recording, read once."""
    fold = Fold()
    with Recording(path) as recording:
        for each in recording.inputs():
            fold.apply(each)
    yield fold.snapshot(), plain(fold.history())


def plain(history: History) -> History:
    """A history that can be pickled."""
    processes = {key: list(series) for key, series in history.processes.items()}
    host = {key: list(series) for key, series in history.host.items()}
    return History(processes, host, history.started_at_s)


def findings_of(case: Case, rules: Sequence[Rule]) -> Findings:
    """The findings of each rule, all rules run on one index in the order given."""
    index = Index(*case)
    return {rule.id: list(rule.check(index)) for rule in rules}


@pytest.fixture(scope="module")
def all_cases() -> list[Case]:
    return list(cases())


@pytest.fixture(scope="module")
def all_findings(all_cases: list[Case]) -> list[Findings]:
    """Those of each case, rules in the order of the registry."""
    return [findings_of(case, RULES) for case in all_cases]


@pytest.fixture(scope="module")
def of_each_kind(
    all_cases: list[Case], all_findings: list[Findings]
) -> list[tuple[Case, Findings]]:
    """A few of the cases in which the same rules find something, with what they find; on demand
    all.
    """
    kinds = Counter[frozenset[str]]()
    chosen = []
    for case, findings in zip(all_cases, all_findings, strict=True):
        kind = frozenset(rule for rule, found in findings.items() if found)
        if kinds[kind] < OF_A_KIND:
            chosen.append((case, findings))
        kinds[kind] += 1
    return chosen


def test_the_cases_make_most_rules_find_something(all_findings: list[Findings]) -> None:
    found = {rule for each in all_findings for rule, findings in each.items() if findings}

    # Rows of the table of known errors have tests with parameters, which are left out here.
    assert len(found) > 0.7 * len(RULES), sorted({rule.id for rule in RULES} - found)


def test_rules_find_the_same_in_any_order_and_again(
    of_each_kind: list[tuple[Case, Findings]],
) -> None:
    """The reversed order is that of the other process, below."""
    for case, findings in of_each_kind:
        assert findings_of(case, sorted(RULES, key=lambda rule: rule.id[::-1])) == findings


def test_native_frames_change_no_finding_and_no_account(
    of_each_kind: list[tuple[Case, Findings]],
) -> None:
    """With `--native`, or `n` on a page, py-spy shows libraries of C around the program's lines."""
    shown = 0
    for (snapshot, past), _ in of_each_kind:
        with_native = replace(
            snapshot, processes=tuple(_read_by_py_spy(p, native=True) for p in snapshot.processes)
        )
        without = replace(
            snapshot, processes=tuple(_read_by_py_spy(p, native=False) for p in snapshot.processes)
        )
        told, plain_told = Engine().diagnosed(with_native, past), Engine().diagnosed(without, past)
        assert told.findings == plain_told.findings
        assert told.account == plain_told.account
        assert told.waits == plain_told.waits
        shown += sum(bool(t.mixed) for p in told.processes for t in p.threads)

    assert shown > len(of_each_kind)  # most have a thread with a stack, and each of these was tried


_LIBC = {"filename": "/usr/lib/libc.so.6", "module": "/usr/lib/libc.so.6", "line": 0}


def _read_by_py_spy(process: Process, *, native: bool) -> Process:
    """The process as the collector of stacks has it, which reads what py-spy prints."""
    return replace(
        process, threads=tuple(_thread_by_py_spy(process, each, native) for each in process.threads)
    )


def _thread_by_py_spy(process: Process, thread: Thread, native: bool) -> Thread:
    around = [{"name": "poll", "locals": None, "is_entry": True, **_LIBC}] * native
    printed = [*around, *around]
    for frame in thread.stack:
        variables = [{"name": name, "repr": value} for name, value in frame.locals]
        printed.append(
            {
                "name": frame.function,
                "filename": frame.file,
                "module": None,
                "line": frame.line,
                "locals": variables,
                "is_entry": frame.from_native,
            }
        )
        printed += around
    dump = [
        {
            "pid": process.pid,
            "os_thread_id": thread.tid,
            "thread_name": thread.name,
            "active": thread.is_active,
            "owns_gil": thread.has_gil,
            "frames": printed,
        }
    ]
    if not thread.stack:
        return thread
    (stack,) = parse_dump(process.process, 0.0, json.dumps(dump).encode())
    return replace(thread, stack=stack.frames, mixed=stack.mixed)


def test_rules_find_the_same_in_another_process(
    of_each_kind: list[tuple[Case, Findings]], tmp_path: Path
) -> None:
    path = tmp_path / "cases"
    path.write_bytes(pickle.dumps([case for case, _ in of_each_kind]))

    done = subprocess.run(
        [sys.executable, "-c", ANOTHER_PROCESS, str(path)],
        env={**os.environ, "PYTHONHASHSEED": "77"},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr.decode()
    assert pickle.loads(done.stdout)[::-1] == [findings for _, findings in of_each_kind]


def test_a_snapshot_diagnosed_again_changes_nothing(
    of_each_kind: list[tuple[Case, Findings]],
) -> None:
    for case, _ in of_each_kind:
        engine = Engine()
        first = engine.diagnosed(*case)
        assert engine.diagnosed(*case) == first
        assert engine.preview(*case) == first
        assert Engine().diagnosed(*case) == first
