"""Real programs in which one thing grows, watched from outside, and others that look like it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration import on_demand
from tests.integration.demo.trial import Case, Row, run
from tests.integration.observe.commands import of_this_job

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("growing"),  # all of them run at the same time, as they use little cpu
]

PROGRAM = Path(__file__).parents[2] / "programs" / "growing.py"
RULE = "steady-growth"
WATCH_S = 100.0
HEALTHY_S = 60.0 if on_demand.IS_SET else 20.0
SAYS = {
    "pipes": ("open pipe ends", "both ends of"),
    "files": ("open files", "growing.py"),
    "sockets": ("open sockets", "connected to 127.0.0.1:"),
    "memory": ("private memory", "growing.py"),
    "threads": ("threads", "heartbeat"),
    "children": ("child processes", "sleep"),
    "queue": ("fills a queue faster than", "growing.py"),
    "backlog": ("fills a queue faster than", "growing.py"),
    "shm": ("shared-memory files", "psm_"),
    "staged": ("makes and does not remove files in memory, /dev/shm/stage_", "shard-"),
    "tmp": ("temporary files", "tmp"),
}
"""Texts that the title and the evidence have to contain."""
HEALTHY = ("cache", "sawtooth", "newest", "upfront")
USUAL = ("shm",)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Row]]]:
    """The future row of each program."""
    folder = tmp_path_factory.mktemp("run")
    folder.chmod(0o700)
    with ThreadPoolExecutor(len(SAYS) + len(HEALTHY)) as pool:
        ways = (*(SAYS if on_demand.IS_SET else USUAL), *HEALTHY)
        yield {way: pool.submit(_watched, way, folder) for way in ways}


def _watched(way: str, folder: Path) -> Row:
    tmp = folder / way
    tmp.mkdir()
    env = {**os.environ, "XDG_RUNTIME_DIR": str(folder), "TMPDIR": str(tmp)}
    expected = () if way in HEALTHY else (RULE,)
    watch_s = WATCH_S if expected else HEALTHY_S
    argv = (sys.executable, str(PROGRAM), way, "--seconds", f"{watch_s + 60:g}")
    case = Case(way, argv, watch_s, expected)
    return run(case, settle_s=3.0 if expected else None, env=env)


@pytest.mark.parametrize("way", on_demand.cases(SAYS, USUAL))
def test_what_grows_is_named_with_its_parts(rows: dict[str, Future[Row]], way: str) -> None:
    row = rows[way].result()

    assert not row.problem
    assert not row.left
    assert not row.missed
    assert not row.alarms, row.findings
    finding = row.findings[RULE]
    title, detail = SAYS[way]
    assert title in finding["summary"]
    assert any(detail in line for line in finding["evidence"]), finding["evidence"]


@pytest.mark.parametrize("way", HEALTHY)
def test_what_is_bounded_is_not_reported(rows: dict[str, Future[Row]], way: str) -> None:
    row = rows[way].result()

    assert not row.problem
    assert not row.left
    assert of_this_job(list(row.findings.values())) == []
