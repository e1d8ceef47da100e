"""A job with only hostile texts: no output of mpwatch passes any of them on unchanged.

The outputs are those of the commands, from a real process to a terminal.
"""

from __future__ import annotations

import contextlib
import html.parser
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mpwatch.cli import main
from mpwatch.collect.host import ptrace_access
from mpwatch.model.events import Input
from mpwatch.model.samples import TreeSample
from mpwatch.observe.recording.file import NotARecording
from mpwatch.observe.sources.replay import replay_to_end
from mpwatch.report.prometheus import exposition
from tests.builders.recordings import read_recording
from tests.conftest import PROGRAMS, kill_group
from tests.integration.cli.terminal import Terminal
from tests.procfs import eventually

# One worker of xdist has the job and its outputs for all tests.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("hostile")]

PAGES = {
    "1": "Threads",
    "2": "Shm",
    "3": "Files",
    "4": "Loader",
    "5": "Flows",
    "6": "Waits",
    "8": "Events",
    "9": "Findings",
}


def shown(*arguments: str) -> str:
    """The output of a command, with standard error."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        main(arguments)
    return output.getvalue()


class Job:
    """The program, and its input and output."""

    def __init__(self, folder: Path) -> None:
        self._errors = (folder / "errors").open("wb")
        self._popen = subprocess.Popen(
            [sys.executable, str(PROGRAMS / "hostile_texts.py"), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        self.pid = str(self._popen.pid)
        self.child = self._line().split()[1]

    def _line(self) -> str:
        assert self._popen.stdout is not None
        return self._popen.stdout.readline()

    def let_a_thread_and_a_child_die(self) -> None:
        assert self._popen.stdin is not None
        print(file=self._popen.stdin, flush=True)
        assert self._line() == "ended\n"

    def end(self) -> None:
        kill_group(self._popen.pid)
        self._popen.communicate()
        self._errors.close()


def recording_of(job: Job, path: Path) -> None:
    """A recording during which a thread and a child die."""
    command = ["-m", "mpwatch", "record", job.pid, "-o", str(path)]
    with subprocess.Popen([sys.executable, *command], stderr=subprocess.DEVNULL) as recording:
        try:
            assert eventually(lambda: any(isinstance(one, TreeSample) for one in inputs_of(path)))
            job.let_a_thread_and_a_child_die()
            assert eventually(
                lambda: "exception" in {getattr(one, "kind", "") for one in inputs_of(path)}
            )
            recording.send_signal(signal.SIGINT)
            assert recording.wait(60) == 0
        finally:
            recording.kill()


def inputs_of(path: Path) -> list[Input]:
    """What a recording that is still being written has so far."""
    try:
        return list(read_recording(str(path)))
    except (OSError, NotARecording):
        return []


def metrics_of(job: Job) -> str:
    """The response of `mpwatch export`."""
    command = ["-m", "mpwatch", "export", job.pid, "--prometheus", "127.0.0.1:0"]
    with subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, text=True
    ) as exporting:
        try:
            assert exporting.stdout is not None
            url = exporting.stdout.readline().split()[1]
            while True:
                # Before the first reading it answers 503.
                with (
                    contextlib.suppress(urllib.error.HTTPError),
                    urllib.request.urlopen(url, timeout=30) as answer,
                ):
                    text: str = answer.read().decode()
                    if "mpwatch_process_" in text:
                        return text
                time.sleep(0.1)
        finally:
            exporting.terminate()


@contextlib.contextmanager
def terminal(job: Job, *options: str) -> Iterator[Terminal]:
    """The dashboard on a terminal, once it shows the job."""
    opened = Terminal("attach", job.pid, *options, variables=os.environ, width=200, height=60)
    try:
        opened.read_until("mFile.mFunction")
        yield opened
        opened.press("q")
        opened.wait()
    finally:
        opened.end()


def visit_pages(opened: Terminal) -> None:
    """Open each page, and wait until its name is underlined at the bottom."""
    for key, name in PAGES.items():
        opened.press(key)
        begin = len(opened.output)
        underlined = re.compile(rb"\x1b\[[\d;]*\b4;[\d;]*m" + name.encode())
        deadline_s = time.monotonic() + 60
        while not underlined.search(opened.output, begin):
            assert time.monotonic() < deadline_s, f"{name} is not shown"
            opened.read_some()


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The text of each output, by its name."""
    if not ptrace_access.check(os.getpid()).is_allowed:
        pytest.skip("this machine forbids ptrace")
    folder = tmp_path_factory.mktemp("hostile")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
            (folder / name).mkdir(mode=0o700)
            patch.setenv(name, str(folder / name))
        job = Job(folder)
        try:
            yield texts_of(job, folder)
        finally:
            job.end()


def texts_of(job: Job, folder: Path) -> dict[str, str]:
    recorded, page, trace = folder / "job.mpw", folder / "page.html", folder / "trace.json"
    found = {
        "plan": shown("attach", job.pid, "--dry-run"),
        "plan.json": shown("attach", job.pid, "--dry-run", "--json"),
        "injection": shown("dump", job.pid, "--hook", "--keep", "--no-stacks"),
    }
    with terminal(job) as dashboard:
        recording_of(job, recorded)
        visit_pages(dashboard)
        dashboard.press("8")
        dashboard.read_until("mError")
    with terminal(job, "--inline") as inline:
        pass
    shown("report", str(recorded), "-o", str(page))
    shown("trace", str(recorded), "-o", str(trace))
    found |= {
        "dump": shown("dump", job.pid),
        "dump by py-spy": shown("dump", job.pid, "--no-hook", "--locals"),
        "dump.json": shown("dump", job.pid, "--json"),
        "diagnosis": shown("diagnose", str(recorded)),
        "diagnosis.json": shown("diagnose", str(recorded), "--json"),
        "doctor": shown("doctor", job.pid),
        "doctor.json": shown("doctor", job.pid, "--json"),
        "ps": shown("ps"),
        "ps.json": shown("ps", "--json"),
        "autopsy": shown("autopsy", os.path.join(os.environ["XDG_RUNTIME_DIR"], "mpwatch")),
        "page.html": page.read_text(),
        "trace.json": trace.read_text(),
        "metrics": metrics_of(job),
        "recorded metrics": exposition(replay_to_end(str(recorded))),
        "dashboard": dashboard.output.decode("latin-1"),
        "inline": inline.output.decode("latin-1"),
    }
    found["detach"] = shown("detach", job.pid)
    found["log"] = Path(os.environ["XDG_STATE_HOME"], "mpwatch", "attach.log").read_text()
    return found


def is_clean(text: str) -> bool:
    """Whether a terminal shows the whole text unchanged, in lines; the HTML page indents by em
    spaces."""
    return all(line.isprintable() for line in text.replace("\u2003", " ").split("\n"))


MARKERS = re.compile(
    "mComm|mArgument|mFunction|mThread|mTh|mFile|mFolder|mSegment|mChild|mDead|mDying|mError|mMessage"
)
OUTPUTS = (
    *("plan", "plan.json", "injection", "dump", "dump by py-spy", "dump.json", "diagnosis"),
    *("diagnosis.json", "doctor", "doctor.json", "ps", "ps.json", "autopsy", "page.html"),
    *("trace.json", "metrics", "recorded metrics", "dashboard", "inline", "detach", "log"),
)
WITHOUT = ("plan", "injection", "ps", "metrics", "detach")
"""Outputs that have only labels and numbers of this job, or cut its command before its texts."""
TERMINALS = ("dashboard", "inline")


def test_every_output_is_checked(outputs: dict[str, str]) -> None:
    assert sorted(outputs) == sorted(OUTPUTS)


@pytest.mark.parametrize("name", [name for name in OUTPUTS if name not in WITHOUT])
def test_texts_of_the_job_appear_in_an_output(outputs: dict[str, str], name: str) -> None:
    assert MARKERS.search(outputs[name])


@pytest.mark.parametrize("name", [name for name in OUTPUTS if name not in TERMINALS])
def test_an_output_has_printable_lines_of_bounded_length(
    outputs: dict[str, str], name: str
) -> None:
    text = outputs[name]

    assert is_clean(text), [line for line in text.split("\n") if not line.isprintable()]
    assert "mTitle" not in text
    assert len(text) < 1_000_000


@pytest.mark.parametrize("name", [name for name in OUTPUTS if name.endswith(".json")])
def test_a_text_within_json_is_printable_too(outputs: dict[str, str], name: str) -> None:
    texts: list[str] = []

    def collect(value: object) -> None:
        if isinstance(value, str):
            texts.append(value)
        for part in value if isinstance(value, (list, dict)) else ():
            collect(part)
        if isinstance(value, dict):
            collect(list(value.values()))

    collect(json.loads(outputs[name]))

    assert texts
    assert [text for text in texts if not text.isprintable()] == []


@pytest.mark.parametrize("name", ["metrics", "recorded metrics"])
def test_each_line_of_metrics_has_one_value_and_quoted_labels(
    outputs: dict[str, str], name: str
) -> None:
    label = r'[a-z_]+="(?:[^"\\\n]|\\[\\"n])*"'
    series = re.compile(rf"mpwatch_[a-z_]+(?:\{{{label}(?:,{label})*\}})? [-+.\deinfa]+")
    lines = [line for line in outputs[name].splitlines() if not line.startswith("#")]

    assert lines
    assert [line for line in lines if not series.fullmatch(line)] == []
    assert not [line for line in lines if line.startswith("mpwatch_forged")]


def test_the_page_has_no_element_or_attribute_of_the_job(outputs: dict[str, str]) -> None:
    found: list[str] = []

    class Page(html.parser.HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.append(tag)
            found.extend(name for name, _ in attrs)

    Page().feed(outputs["page.html"])

    assert "table" in found
    assert {"script", "img", "onerror", "link"}.isdisjoint(found)


def test_a_line_of_the_log_is_of_one_injection_or_detach(outputs: dict[str, str]) -> None:
    kinds = {line.split()[1] for line in outputs["log"].splitlines()}

    assert kinds == {"inject", "detach"}


FORBIDDEN: dict[str, Callable[[str], bool]] = {
    "moves the cursor": lambda text: "66;66H" in text,
    "reaches the clipboard": lambda text: "\x1b]52" in text,
    "sets the title": lambda text: "mTitle" in text,
    "has 8-bit controls": lambda text: "\xc2\x9b" in text or "\xc2\x9d" in text,
    "turns the direction": lambda text: "\xe2\x80\xae" in text or "\xe2\x81\xa6" in text,
    "has no width": lambda text: "\xe2\x80\x8b" in text or "\xef\xbb\xbf" in text,
    "makes a link": lambda text: "\x1b]8;" in text,
}


@pytest.mark.parametrize("what", FORBIDDEN)
@pytest.mark.parametrize("name", TERMINALS)
def test_no_text_of_the_job_controls_the_terminal(
    outputs: dict[str, str], name: str, what: str
) -> None:
    assert not FORBIDDEN[what](outputs[name])
