from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.rules.throughput.program_per_round import check
from mpwatch.model.account import Activity
from mpwatch.model.findings import Severity
from mpwatch.model.ids import Role
from mpwatch.model.snapshot import Snapshot
from mpwatch.model.source_code import SourceLine, Statement
from tests.builders.accounts import COMPUTES, SLEEPS, with_shares
from tests.builders.snapshots import (
    MAIN,
    NOW_S,
    WALL_S,
    exited,
    found,
    main,
    only,
    pid,
    process,
    snapshot_of,
    thread,
)

FILE = "/home/me/train.py"
IN_RUN = (
    "subprocess.py:communicate",
    "subprocess.py:run",
    "train.py:decode:20",
    "train.py:fill:31",
)
OUTPUT = Activity("waiting", "pipe 77", "pipe")
EXIT = Activity("waiting", "the exit of a child", "child", (pid(300),))
SPENT = {OUTPUT: 0.5, EXIT: 0.3, COMPUTES: 0.2}
LOOP = Statement(30, "for path in paths:")


def job(
    *,
    stack: tuple[str, ...] = IN_RUN,
    spent: dict[Activity, float] = SPENT,
    count: int = 12,
    lived_s: float = 0.4,
    name: str = "sox",
    role: Role = "other",
    within: tuple[Statement, ...] = (LOOP,),
    workers: int = 0,
    text: str = "return subprocess.run(command, capture_output=True)",
) -> Snapshot:
    """Main that starts programs, which end one after the other."""
    ends = [NOW_S - 4 * n - 1 for n in range(count)]
    programs = [
        process(
            300 + n,
            role,
            name=name,
            born_wall_s=WALL_S + at_s - NOW_S - lived_s,
            ended=exited(300 + n, at_s=at_s),
        )
        for n, at_s in enumerate(ends)
    ]
    living = [process(200 + n, "spawned") for n in range(workers)]
    source = (
        SourceLine(FILE, 20, "decode", Statement(20, text)),
        SourceLine(FILE, 31, "fill", Statement(31, "rows.append(decode(path))"), within),
    )
    of_main = main(threads=[thread(MAIN, *stack)])
    return with_shares(snapshot_of(of_main, *living, *programs, source=source), p100=spent)


def test_a_loop_that_starts_a_program_in_its_rounds_is_named_with_both() -> None:
    finding = only(check, job())

    assert finding.severity is Severity.INFO
    assert finding.is_doubtful
    assert finding.process == pid(MAIN)
    assert finding.summary == (
        "main (100) waits 80% of the time for sox, which it starts anew again and again at "
        "train.py:20 decode, in the rounds of `for path in paths:` (train.py:30 fill)"
    )
    assert finding.evidence[-1].startswith(
        "main (100) has started at least 12 of sox in the last minute, none of which ran for "
        "longer than 0.4 s"
    )
    assert "Start sox once for many rounds" in finding.advice


def test_not_every_round_has_to_start_a_program() -> None:
    some = (LOOP, Statement(30, "if path.suffix == '.wav':"))

    assert "in each round" not in only(check, job(within=some)).cause


def test_a_shell_command_is_seen_by_its_statement() -> None:
    taken = job(stack=IN_RUN[2:], text="os.system(f'sox {path} {target}')", spent={EXIT: 0.9})

    assert "train.py:20 decode" in only(check, taken).summary


def test_programs_that_take_turns_are_told_one_by_one_however_many() -> None:
    # Each wait is for another program, of which the account keeps few apart.
    waits = {Activity("waiting", "the exit of a child", "child", (pid(n),)): 0.1 for n in range(8)}

    assert "waits 80% of the time" in only(check, job(spent={**waits, COMPUTES: 0.2})).summary


@pytest.mark.parametrize(
    "healthy",
    [
        {"lived_s": 40.0},
        {"count": 3},
        {"spent": {OUTPUT: 0.1, EXIT: 0.1, COMPUTES: 0.8}},
        {"spent": {SLEEPS: 1.0}},
        {"within": ()},
        {"stack": ("train.py:decode:20", "train.py:fill:31")},
        {"role": "spawned"},
        {"workers": 2, "spent": {OUTPUT: 0.8, COMPUTES: 0.2}},
    ],
    ids=[
        "the program itself does the work",
        "few programs",
        "the process works meanwhile",
        "the process pauses",
        "no loop",
        "the process does something else",
        "workers of multiprocessing",
        "the pipes may be those of workers",
    ],
)
def test_other_programs_and_waits_are_not_reported(healthy: dict[str, Any]) -> None:
    assert found(check, job(**healthy)) == []


def test_processes_at_one_line_are_named_together() -> None:
    taken = job(workers=1)
    (of_main, worker), programs = taken.processes[:2], taken.processes[2:]
    worker = replace(worker, threads=of_main.threads)
    more = [replace(e, parent=worker.process, original_parent=worker.process) for e in programs]
    more = [replace(e, process=pid(e.pid + 100)) for e in more]
    both = replace(taken, processes=(of_main, worker, *programs, *more))
    exits = {EXIT: 0.8, COMPUTES: 0.2}

    finding = only(check, with_shares(both, p100=exits, p200=exits))

    assert finding.others == (pid(200),)
    assert finding.summary.startswith("main (100) and spawned 200 (200) wait 80% of the time")
