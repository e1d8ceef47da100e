"""What commands say under Yama's `ptrace_scope` 1 and 2, also on a kernel without Yama.

The setting is a file of the test, mounted where the kernel would have it. The right that overrides
it is really taken away, and what Yama would refuse is refused by a filter.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.cli.terminal import REPOSITORY, Terminal

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs namespaces of its own"),
    pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv of util-linux"),
]

# The observer is the parent of its target, or its child; ends with the target's end, or ends it.
OBSERVER = """
import contextlib, ctypes, io, json, os, signal, sys, time
from mpwatch.cli import main
from tests.integration.demo.refusals import refuse_attaching
relation, *commands = sys.argv[1:]
child = os.fork()
if (child == 0) is (relation == "parent"):
    if child: os.waitpid(child, 0)
    else: ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    while not child: time.sleep(60)
    sys.exit()
target = str(child or os.getppid())
with open("/proc/sys/kernel/yama/ptrace_scope") as file: is_scope_1 = file.read() == "1\\n"
refuse_attaching(files=relation == "child" or not is_scope_1)
for command in map(json.loads, commands):
    words = [target if word == "PID" else word for word in command]
    if command[0] == "attach" and "--dry-run" not in command: sys.exit(main(words))
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out): code = main(words)
    print(json.dumps([code, out.getvalue()]), flush=True)
if child: os.kill(child, signal.SIGKILL)
"""
SENTENCES = {
    ("1", "child"): "Yama allows a process to trace only its own children"
    " (kernel.yama.ptrace_scope = 1)",
    ("1", "parent"): "Yama allows only its ancestors to trace it (kernel.yama.ptrace_scope = 1),"
    " and mpwatch traces from another process",
    ("2", "child"): "Yama allows a process to trace nothing without CAP_SYS_PTRACE"
    " (kernel.yama.ptrace_scope = 2)",
    ("2", "parent"): "Yama allows a process to trace nothing without CAP_SYS_PTRACE"
    " (kernel.yama.ptrace_scope = 2)",
}
"""By the scope, and by what the observer is of its target."""
FIX = "sudo sysctl kernel.yama.ptrace_scope=0"
Command = Callable[..., list[str]]


@pytest.fixture
def observer(tmp_path: Path) -> Command:
    """The command of an observer under a scope: what it is of its target, and what it runs."""

    def command(scope: str, relation: str, *commands: list[str]) -> list[str]:
        settings = tmp_path / "kernel"
        (settings / "yama").mkdir(parents=True)
        (settings / "yama/ptrace_scope").write_text(f"{scope}\n")
        for name in ("threads-max", "pid_max", "hostname"):
            (settings / name).write_text(Path("/proc/sys/kernel", name).read_text())
        script = (
            f"mount --bind {settings} /proc/sys/kernel && "
            'exec setpriv --bounding-set=-sys_ptrace --inh-caps=-sys_ptrace "$@"'
        )
        arguments = [sys.executable, "-c", OBSERVER, relation, *map(json.dumps, commands)]
        return ["unshare", "--mount", "sh", "-c", script, "sh", *arguments]

    return command


@pytest.mark.parametrize(("scope", "relation"), SENTENCES)
def test_each_command_names_the_scope_with_its_fix_and_shows_the_rest(
    observer: Command, scope: str, relation: str
) -> None:
    commands = [
        ["dump", "PID", "--json"],
        ["dump", "PID", "--json", "--hook"],
        ["attach", "PID", "--dry-run"],
        ["doctor", "PID"],
    ]
    done = subprocess.run(
        observer(scope, relation, *commands),
        capture_output=True, text=True, check=False, timeout=120, cwd=REPOSITORY,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (code, shown), (hooked_code, hooked), (_, plan), (_, doctor) = map(
        json.loads, done.stdout.splitlines()
    )
    sentence = SENTENCES[scope, relation]

    assert (code, hooked_code) == (0, 0)
    (process,) = (each for each in json.loads(shown)["processes"] if each["pid"])
    (problem,) = (each for each in process["problems"] if each.startswith("stacks: "))
    assert f"No stacks of process {process['pid']}: {sentence}: " in problem
    assert FIX in problem
    assert process["rss_bytes"]
    assert process["fds"]["used"]
    assert process["threads"][0]["state"] == "S"
    (process,) = json.loads(hooked)["processes"]
    assert (process["hook"]["state"], sentence in process["hook"]["reason"]) == ("absent", True)
    for text in (plan, doctor):
        assert sentence in " ".join(text.split())  # it is wrapped
        assert FIX in " ".join(text.split())
    assert os.listdir(os.environ["XDG_RUNTIME_DIR"]) == []


@pytest.mark.parametrize(("scope", "relation"), [("1", "child"), ("2", "child")])
def test_the_dashboard_asks_nothing_and_says_why(
    observer: Command, scope: str, relation: str
) -> None:
    command = observer(scope, relation, ["attach", "PID"])
    terminal = Terminal(
        variables={}, width=200, program=("-c", f"import os; os.execvp('unshare', {command!r})")
    )
    try:
        terminal.read_until(SENTENCES[scope, relation][:60])
        terminal.press("q")
        terminal.wait()
    finally:
        terminal.end()
    assert b"inject the hook into" not in terminal.output
