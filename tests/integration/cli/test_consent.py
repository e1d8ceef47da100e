"""What `mpwatch attach` does to a job with and without consent, on real terminals."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import free_port
from tests.procfs import eventually, hook_threads

from .terminal import REPOSITORY, Terminal, idle_program

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ptrace_allowed")]

ASKED = "inject the hook into 1 process?"


@pytest.fixture
def variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Private directories for the hook's files, the log and the configuration."""
    found = {}
    for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        folder = tmp_path_factory.mktemp("x")
        folder.chmod(0o700)
        found[name] = str(folder)
    return found


@pytest.fixture
def job(variables: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    popen = idle_program(variables)
    yield popen
    popen.kill()
    popen.communicate()


@pytest.fixture
def dashboard(
    job: subprocess.Popen[bytes], variables: dict[str, str]
) -> Iterator[Callable[..., Terminal]]:
    started: list[Terminal] = []

    def start(*options: str) -> Terminal:
        started.append(Terminal("attach", str(job.pid), *options, variables=variables))
        return started[-1]

    yield start
    for each in started:
        each.end()


def log_lines(variables: dict[str, str]) -> list[str]:
    path = Path(variables["XDG_STATE_HOME"], "mpwatch", "attach.log")
    return path.read_text().splitlines() if path.exists() else []


def configured(variables: dict[str, str], answer: str) -> None:
    folder = Path(variables["XDG_CONFIG_HOME"], "mpwatch")
    folder.mkdir()
    (folder / "config.toml").write_text(f'[attach]\nhook = "{answer}"\n')
    (folder / "config.toml").chmod(0o600)


def mpwatch(*arguments: str, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "mpwatch", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("leaving", "code"), [("q", 0), ("\x03", 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_yes_injects_and_quitting_detaches(
    dashboard: Callable[..., Terminal],
    job: subprocess.Popen[bytes],
    variables: dict[str, str],
    leaving: str | signal.Signals,
    code: int,
) -> None:
    terminal = dashboard()
    terminal.read_until(ASKED)
    assert hook_threads(job.pid) == 0

    def is_accepted() -> bool:
        terminal.press("y")  # ignored until the question has been readable for half a second
        return eventually(lambda: hook_threads(job.pid) == 1, 1.0)

    assert eventually(is_accepted)
    terminal.read_until("1/1")

    if isinstance(leaving, str):
        terminal.press(leaving)
    else:
        terminal.signal(leaving)

    assert terminal.wait() == code
    assert hook_threads(job.pid) == 0
    assert b"The hook was detached from 1 process." in terminal.output
    inject, detach = log_lines(variables)
    assert f" pid={job.pid} " in inject
    assert " inject " in inject
    assert f" pid={job.pid} " in detach
    assert " result=detached " in detach


def test_a_terminal_that_is_gone_detaches_too(
    dashboard: Callable[..., Terminal], job: subprocess.Popen[bytes]
) -> None:
    terminal = dashboard("--hook")
    assert eventually(lambda: hook_threads(job.pid) == 1)
    terminal.read_until("1/1")

    terminal.hang_up()

    assert terminal.wait() == 129
    assert hook_threads(job.pid) == 0


def test_an_inline_status_whose_terminal_is_gone_ends_as_by_its_signal(
    dashboard: Callable[..., Terminal],
) -> None:
    """What Textual prints below the prompt at the end cannot be written any more."""
    terminal = dashboard("--inline")
    terminal.read_until("nothing wrong found")

    terminal.hang_up()

    assert terminal.wait() == 129


def test_keep_leaves_the_hook_and_says_how_to_detach_it(
    dashboard: Callable[..., Terminal], job: subprocess.Popen[bytes], variables: dict[str, str]
) -> None:
    terminal = dashboard("--hook", "--keep")
    terminal.read_until("1/1")
    terminal.press("q")

    assert terminal.wait() == 0
    assert hook_threads(job.pid) == 1
    assert f"mpwatch detach {job.pid}".encode() in terminal.output

    # A hook that was attached before stays, also where a later session injects.
    again = dashboard("--hook")
    again.read_until("1/1")
    again.press("q")
    assert again.wait() == 0
    assert hook_threads(job.pid) == 1
    assert mpwatch("detach", str(job.pid), variables=variables).returncode == 0
    assert hook_threads(job.pid) == 0


@pytest.mark.parametrize("options", [["--readonly"], ["--inline"], ["--no-hook"], ["never"]])
def test_nothing_is_injected_without_consent(
    dashboard: Callable[..., Terminal],
    job: subprocess.Popen[bytes],
    variables: dict[str, str],
    options: list[str],
) -> None:
    configured(variables, "never" if options == ["never"] else "always")
    terminal = dashboard(*(each for each in options if each != "never"))
    terminal.read_until("0/1")
    for _ in range(3):
        terminal.press("y")
        assert not eventually(lambda: hook_threads(job.pid) > 0, 0.3)
    terminal.press("q")

    assert terminal.wait() == 0
    assert log_lines(variables) == []
    assert ASKED.encode() not in terminal.output


def test_always_in_the_configuration_injects_without_a_question(
    dashboard: Callable[..., Terminal], job: subprocess.Popen[bytes], variables: dict[str, str]
) -> None:
    configured(variables, "always")
    terminal = dashboard()
    terminal.read_until("1/1")
    terminal.press("q")

    assert terminal.wait() == 0
    assert hook_threads(job.pid) == 0
    assert ASKED.encode() not in terminal.output


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["dump"], 0),
        (["diagnose", "--for", "1"], 0),
        (["record", "--for", "1", "-o", "/dev/null/x"], 2),
        (["record", "--for", "1", "-o", "job.mpw"], 0),
        (["attach"], 2),  # there is no terminal
    ],
)
def test_always_in_the_configuration_is_no_consent_for_other_commands(
    job: subprocess.Popen[bytes],
    variables: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: list[str],
    code: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    configured(variables, "always")
    name, *options = command

    done = mpwatch(name, str(job.pid), *options, variables=variables)

    assert done.returncode == code, done.stderr
    assert hook_threads(job.pid) == 0
    assert log_lines(variables) == []


def test_always_in_the_configuration_is_no_consent_for_export(
    job: subprocess.Popen[bytes], variables: dict[str, str]
) -> None:
    configured(variables, "always")
    environment = {**os.environ, **variables, "PYTHONPATH": str(REPOSITORY)}
    command = ["-m", "mpwatch", "export", str(job.pid), "--prometheus", f"127.0.0.1:{free_port()}"]
    with subprocess.Popen(
        [sys.executable, *command], env=environment, stdout=subprocess.PIPE, text=True
    ) as export:
        assert export.stdout is not None
        url = export.stdout.readline().split()[-1]

        def reports() -> bool:
            try:
                with urllib.request.urlopen(url, timeout=30) as answer:
                    return b"mpwatch_processes 1" in answer.read()
            except urllib.error.HTTPError:
                return False  # nothing has been read yet

        try:
            assert eventually(reports)
        finally:
            export.send_signal(signal.SIGINT)
            export.communicate(timeout=60)

    assert hook_threads(job.pid) == 0
    assert log_lines(variables) == []


PICKS = """
import sys
from mpwatch.cli import main
from mpwatch.collect.job import jobs
find_jobs, proc = jobs.find_jobs, sys.argv[1]
jobs.find_jobs = lambda: find_jobs(proc)
sys.exit(main([]))
"""


def test_always_in_the_configuration_is_no_consent_for_the_picker(
    variables: dict[str, str], tmp_path: Path
) -> None:
    """What maps a file of that name is listed as a torch job.

    It is the only process that the picker sees: the process of the tests may have loaded torch as
    well, and would then be the top of the same job.
    """
    configured(variables, "always")
    (tmp_path / "libtorch.so").write_bytes(bytes(4096))
    maps = "import mmap; file = open('libtorch.so'); m = mmap.mmap(file.fileno(), 0, access=1); "
    job = idle_program(variables, before=maps, cwd=tmp_path)
    proc = tmp_path / "proc"
    proc.mkdir()
    for name in (str(job.pid), "stat"):
        (proc / name).symlink_to(f"/proc/{name}")
    terminal = Terminal(str(proc), variables=variables, program=("-c", PICKS))
    try:
        terminal.read_until("1 torch job on")
        terminal.press("\r")
        terminal.read_until("0/1")
        assert not eventually(lambda: hook_threads(job.pid) > 0, 0.5)
        terminal.press("q")
        assert terminal.wait() == 0
        assert hook_threads(job.pid) == 0
        assert log_lines(variables) == []
        assert ASKED.encode() not in terminal.output
    finally:
        terminal.end()
        job.kill()
        job.communicate()


@pytest.mark.parametrize("options", [["serve"], ["attach"], ["attach", "--hook"]])
def test_always_in_the_configuration_is_no_consent_in_a_browser(
    job: subprocess.Popen[bytes], variables: dict[str, str], options: list[str]
) -> None:
    """By `mpwatch serve`, or by a server that somebody makes with textual-serve."""
    pytest.importorskip("textual_serve")
    configured(variables, "always")
    name, *more = options
    port = free_port()
    command = [name, str(job.pid), "--port", str(port)]
    program = ["-m", "mpwatch"]
    if name == "attach":
        shown = shlex.join([sys.executable, "-m", "mpwatch", "attach", str(job.pid), *more])
        program = [
            "-c",
            f"from textual_serve.server import Server; Server({shown!r}, port={port}).serve()",
        ]
        command = []
    environment = {**os.environ, **variables, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(
        [sys.executable, *program, *command],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as server:
        try:
            hooks = asyncio.run(press_in_browser(port, job.pid))
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(60)

    assert hooks == ("--hook" in options)
    assert eventually(lambda: hook_threads(job.pid) == 0)
    assert len(log_lines(variables)) == 2 * hooks


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}],
)
def test_pages_of_other_sites_cannot_see_a_served_dashboard(
    job: subprocess.Popen[bytes], variables: dict[str, str], headers: dict[str, str]
) -> None:
    """Neither its page nor its websocket; the page of this server can."""
    pytest.importorskip("textual_serve")
    port = free_port()
    environment = {**os.environ, **variables, "PYTHONPATH": str(REPOSITORY)}
    with subprocess.Popen(
        [sys.executable, "-m", "mpwatch", "serve", str(job.pid), "--port", str(port)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as server:
        try:
            assert asyncio.run(statuses_of(port, {})) == [200, 101]
            assert asyncio.run(statuses_of(port, {"Origin": f"http://localhost:{port}"})) == (
                [200, 101]
            )
            assert asyncio.run(statuses_of(port, headers)) == [403, 403]
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(60)


async def statuses_of(port: int, headers: dict[str, str]) -> list[int]:
    """The HTTP status of the page and of the websocket of a server, once it answers."""
    import aiohttp

    place = f"http://127.0.0.1:{port}"
    async with aiohttp.ClientSession(headers=headers) as session:
        for _ in range(600):
            with contextlib.suppress(aiohttp.ClientConnectionError):
                async with session.get(f"{place}/") as page:
                    found = [page.status]
                break
            await asyncio.sleep(0.05)
        try:
            browser = await session.ws_connect(f"{place}/ws?width=80&height=24")
        except aiohttp.WSServerHandshakeError as error:
            return [*found, error.status]
        await browser.close()
        return [*found, 101]


async def press_in_browser(port: int, pid: int) -> int:
    """Press what injects, in a dashboard that a browser shows; the threads of hooks afterwards."""
    import aiohttp

    async with aiohttp.ClientSession() as session:
        for _ in range(600):
            with contextlib.suppress(aiohttp.ClientError):
                place = f"http://127.0.0.1:{port}/ws?width=120&height=40"
                browser = await session.ws_connect(place)
                break
            await asyncio.sleep(0.05)
        painted = b""
        while b"0/1" not in painted and b"1/1" not in painted:
            painted += received(await browser.receive(60))
        for key in ("i", "y"):
            await browser.send_json(["stdin", key])
            await asyncio.sleep(0.8)
        found = hook_threads(pid)
        await browser.close()
        return found


def received(message: Any) -> bytes:
    """What a browser gets to paint."""
    return message.data if isinstance(message.data, bytes) else str(message.data).encode()


@pytest.mark.parametrize(
    "command", [["dump", "--no-stacks"], ["diagnose", "--for", "1"], ["record", "--for", "1"]]
)
def test_commands_detach_what_they_injected(
    job: subprocess.Popen[bytes],
    variables: dict[str, str],
    tmp_path: Path,
    command: list[str],
) -> None:
    name, *options = command
    options += ["-o", str(tmp_path / "file.mpw")] if name == "record" else []

    done = mpwatch(name, str(job.pid), "--hook", *options, variables=variables)

    assert done.returncode == 0, done.stderr
    assert "The hook was detached from 1 process." in done.stderr
    assert hook_threads(job.pid) == 0
    assert [line.split()[1] for line in log_lines(variables)] == ["inject", "detach"]


def test_a_recording_that_is_terminated_detaches(
    job: subprocess.Popen[bytes], variables: dict[str, str], tmp_path: Path
) -> None:
    environment = {**os.environ, **variables, "PYTHONPATH": str(REPOSITORY)}
    recorded = str(tmp_path / "file.mpw")
    command = [sys.executable, "-m", "mpwatch", "record", str(job.pid), "--hook", "-o", recorded]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as recording:
        assert eventually(lambda: hook_threads(job.pid) == 1)
        recording.terminate()
        _, told = recording.communicate(timeout=60)

    assert recording.returncode == 143
    assert b"The hook was detached from 1 process." in told
    assert hook_threads(job.pid) == 0


def test_a_dry_run_says_what_would_be_done_and_does_nothing(
    job: subprocess.Popen[bytes], variables: dict[str, str]
) -> None:
    runtime = Path(variables["XDG_RUNTIME_DIR"])
    text = mpwatch("attach", str(job.pid), "--dry-run", variables=variables)
    document = json.loads(
        mpwatch("attach", str(job.pid), "--dry-run", "--json", variables=variables).stdout
    )

    assert text.returncode == 0, text.stderr
    assert "inject, by " in text.stdout
    assert f"attach-{job.pid}-" in text.stdout
    assert "os._exit" in text.stdout
    assert document["schema"] == 1
    (process,) = document["processes"]
    assert process["pid"] == job.pid
    assert process["would_be_injected"]
    assert process["method"] == "pending call"
    assert not [words for words in process["writes"] if "copy" in words]
    assert document["patches"]
    assert list(runtime.iterdir()) == []
    assert hook_threads(job.pid) == 0
    assert log_lines(variables) == []


def test_a_dry_run_says_why_a_process_is_excluded(variables: dict[str, str]) -> None:
    popen = idle_program({**variables, "MPWATCH_DISABLE": "1"})
    try:
        text = mpwatch("attach", str(popen.pid), "--dry-run", variables=variables).stdout
    finally:
        popen.kill()
        popen.communicate()

    assert "left out: MPWATCH_DISABLE is set in its environment" in text
    assert "fix: start it without MPWATCH_DISABLE" in text


def test_a_configuration_that_others_may_write_is_refused(
    dashboard: Callable[..., Terminal], job: subprocess.Popen[bytes], variables: dict[str, str]
) -> None:
    configured(variables, "always")
    Path(variables["XDG_CONFIG_HOME"], "mpwatch", "config.toml").chmod(0o666)
    terminal = dashboard()

    assert terminal.wait() == 2
    assert b"can be written by other users." in terminal.output
    assert hook_threads(job.pid) == 0


def test_the_doctor_shows_the_hook_of_a_process(
    job: subprocess.Popen[bytes], variables: dict[str, str]
) -> None:
    def doctor() -> dict[str, dict[str, str]]:
        done = mpwatch("doctor", str(job.pid), "--json", variables=variables)
        assert done.returncode == 0, done.stderr
        return {check["name"]: check for check in json.loads(done.stdout)["checks"]}

    before = doctor()
    assert before["hook"]["value"] == "absent"
    assert before["hook files"]["value"] == "none"
    assert before["hook mappings"]["value"] == "none"
    assert before["attach log"]["value"] == "no entry"

    options = ["--hook", "--keep", "--no-stacks"]
    assert mpwatch("dump", str(job.pid), *options, variables=variables).returncode == 0
    during = doctor()
    runtime = variables["XDG_RUNTIME_DIR"]
    assert during["hook"]["value"].startswith("attached, for ")
    assert "loaded by attach" in during["hook"]["value"]
    assert runtime in during["hook"]["meaning"]
    assert "os._exit" in during["patch points"]["meaning"]
    assert runtime in during["hook files"]["meaning"]
    # The ring is a file where the runtime directory is on tmpfs, and memory elsewhere.
    ring = during["hook mappings"]["meaning"]
    assert runtime in ring or "/memfd:mpwatch-ring" in ring
    assert runtime in during["hook socket"]["meaning"]
    assert during["threads"]["value"] == "1 beside the main thread"
    assert " inject " in during["attach log"]["meaning"]

    gone = mpwatch("detach", str(job.pid), variables=variables)
    assert (gone.returncode, gone.stdout.splitlines()) == (
        0,
        [
            f"{job.pid}: the hook is detached",
            "The hook's modules remain imported, but unused, until a process exits.",
        ],
    )
    again = mpwatch("detach", str(job.pid), variables=variables)
    assert again.stdout == f"{job.pid}: there is no hook in it\n"
    after = doctor()
    assert after["hook"]["value"] == "absent"
    assert after["hook socket"]["value"] == "none"
    assert after["threads"]["value"] == "0 beside the main thread"
    assert " detach " in after["attach log"]["meaning"]


@pytest.mark.parametrize("forbids", ["", "MPWATCH_DISABLE", "never"])
def test_the_doctor_says_whether_the_hook_may_be_injected(
    variables: dict[str, str], forbids: str
) -> None:
    if forbids == "never":
        configured(variables, "never")
    popen = idle_program({**variables, **({forbids: "1"} if forbids.isupper() else {})})
    try:
        done = mpwatch("doctor", str(popen.pid), "--json", variables=variables)
    finally:
        popen.kill()
        popen.communicate()

    assert done.returncode == 0, done.stderr
    (check,) = [each for each in json.loads(done.stdout)["checks"] if each["name"] == "injection"]
    if forbids.isupper():
        assert (check["state"], check["value"]) == ("note", "left out")
        assert check["meaning"] == f"{forbids} is set in its environment."
        assert check["fix"] == f"start it without {forbids}"
    else:
        assert (check["state"], check["value"]) == ("ok", "possible")
    says_never = 'hook = "never"' in check["meaning"]
    assert says_never == (forbids == "never")


def test_only_the_chosen_process_is_injected(variables: dict[str, str]) -> None:
    program = (
        "import subprocess, sys, time\n"
        "code = 'import time\\nwhile True: time.sleep(0.02)'\n"
        "child = subprocess.Popen([sys.executable, '-c', code])\n"
        "print(child.pid, flush=True)\n"
        "while True: time.sleep(0.02)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        env={**os.environ, **variables},
        start_new_session=True,
    ) as popen:
        assert popen.stdout is not None
        child = int(popen.stdout.readline())
        terminal = Terminal(
            "attach", str(popen.pid), "--hook", "--only", str(child), variables=variables
        )
        try:
            assert eventually(lambda: hook_threads(child) == 1)
            terminal.read_until("1/2")
            assert hook_threads(popen.pid) == 0
            terminal.press("q")
            assert terminal.wait() == 0
            assert hook_threads(child) == 0
        finally:
            terminal.end()
            os.killpg(popen.pid, signal.SIGKILL)
