"""Reports as one HTML file."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from msgspec.structs import replace

from mpwatch.model.snapshot import Hook
from mpwatch.observe.sources.replay import replay_course
from mpwatch.report.html import report_html
from tests.builders.progress import source as progress_source
from tests.builders.report_job import MAIN, WORKER, account, finding, job
from tests.builders.samples import START_S, small_job
from tests.unit.observe.recording.conftest import Recorded, recorded

__all__ = ["recorded"]

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;"
VOID = {"meta", "br", "polyline"}


class Page(HTMLParser):
    """Notes tags, attributes and text, and that every tag is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words = ""
        self.open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def test_every_tag_is_closed() -> None:
    assert Page(report_html(job())).open == []


def test_a_page_shows_findings_processes_segments_flows_waits_and_stacks() -> None:
    words = Page(report_html(job())).words

    for part in (
        "mpwatch: train.py 41823",
        "main reaches its limit of 1024 fds in 38 s",
        "+24 fds a second, one per tensor received",
        "41826 worker 0",
        "ended: signal 9 (SIGKILL)",
        "main waits for batch 417",
        "Nobody will release this lock.",
        "data.py:31",
        "gpu: no NVML library",
    ):
        assert part in words


def test_a_finding_has_the_labels_of_the_screens() -> None:
    effect = replace(finding(), effect_of="lost-batch")

    html = report_html(replace(job(), findings=(effect,)))

    assert re.findall("<dt>(.*?)</dt>", html) == [
        *("forecast", "evidence", "evidence", "cause", "fix", "effect of"),
    ]


def test_a_page_loads_nothing_and_runs_nothing() -> None:
    page = Page(report_html(job()))

    assert not {"script", "img", "link", "iframe", "object", "base", "form"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name in ("src", "href") or name[:2] == "on"]
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes
    assert "url(" not in report_html(job())


def test_hostile_text_of_a_process_stays_text() -> None:
    snapshot = job()
    evil = replace(snapshot.processes[0], label=HOSTILE, doing=HOSTILE)

    page = Page(report_html(replace(snapshot, processes=(evil, *snapshot.processes[1:]))))

    assert HOSTILE in page.words
    assert "script" not in page.tags
    assert "img" not in page.tags


def test_hostile_text_everywhere_else_stays_text() -> None:
    snapshot = job()
    evil = replace(
        snapshot,
        findings=(replace(finding(), summary=HOSTILE, evidence=(HOSTILE,), rule=HOSTILE),),
        problems=(HOSTILE,),
        host=replace(snapshot.host, hostname=HOSTILE),
    )

    page = Page(report_html(evil))

    assert page.words.count(HOSTILE) == 6
    assert {"script", "img"}.isdisjoint(page.tags)


def test_resolved_findings_are_marked() -> None:
    gone = replace(job(), findings=(replace(finding(), resolved_s=1.0),))

    assert "resolved" in Page(report_html(gone)).words


def test_a_page_has_the_account_of_time_with_its_error() -> None:
    page = Page(report_html(replace(job(), account=account())))

    assert "What the job is doing" in page.words
    assert "100% waiting for batches from worker 0" in page.words
    assert "Watched for 30 s, 60 readings." in page.words


def test_a_page_has_the_progress_of_the_job_and_of_each_process() -> None:
    batches = [
        progress_source(4.0, 100, begin_s=400.0, process=MAIN),
        progress_source(2.0, 60, begin_s=400.0, process=WORKER),
    ]

    text = report_html(replace(job(), account=account(), progress=tuple(batches)))

    words = Page(text).words
    assert "batches of 2 processes4.0/s now, 5.2/s over 100 s" in words
    assert "main4.0/s now, 4.0/s over 100 s" in words
    assert "worker 00/s for 40 s, 2.0/s before that" in words
    assert "batches a second, 4 to 6 in 95 s" in words


def test_a_page_without_a_hook_says_that_progress_is_unknown() -> None:
    processes = tuple(replace(process, hook=Hook()) for process in job().processes)

    page = Page(report_html(replace(job(), account=account(), processes=processes)))

    assert "Progress is unknown without the hook." in page.words


def test_a_page_without_an_account_has_the_reason() -> None:
    assert "No process was observed" in Page(report_html(job())).words


def test_a_recording_gives_curves(recorded: Recorded) -> None:
    snapshot, course = replay_course(
        recorded([small_job(START_S + n, cpu_ticks=n) for n in range(30)])
    )
    empty = Page(report_html(snapshot, course))
    course.host["/dev/shm bytes"].points.clear()
    for n in range(30):
        course.host["/dev/shm bytes"].add(START_S + n, float(n << 20))

    page = Page(report_html(snapshot, course))

    assert empty.tags.count("svg") == 0
    assert page.tags.count("svg") == 1
    assert "/dev/shm bytes, 0B to 29.0M in 29 s" in page.words
