"""Checks of the right to trace, and of the directories for the hook's files."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from mpwatch.collect.host.doctor import hook_folder, tracing, tracing_check
from mpwatch.collect.host.ptrace_access import AccessFacts

ABLE = 1 << 19
"""CAP_SYS_PTRACE alone."""
FREE = AccessFacts(pid=77, uid=1000, capabilities=0, uids=(1000,) * 4, yama_scope=0, may_open=True)


def test_a_plain_machine_lets_a_user_trace_their_own() -> None:
    check = tracing_check(FREE, is_general=True)

    assert check.state == "ok"
    assert check.value.startswith("CAP_SYS_PTRACE no, Yama ptrace_scope 0, seccomp mode 0")
    assert check.meaning.startswith("Processes of this user can be traced")


@pytest.mark.parametrize(
    ("facts", "is_general", "words"),
    [
        (replace(FREE, is_ptrace_filtered=True), True, "seccomp"),
        (replace(FREE, yama_scope=1), True, "Yama allows a process to trace only its own children"),
        (replace(FREE, yama_scope=3, capabilities=ABLE), True, "until the next boot"),
        (replace(FREE, uids=(0,) * 4, may_open=False), False, "belongs to uid 0"),
        (replace(FREE, tracer_pid=7), False, "Process 7 traces it already"),
        (replace(FREE, is_dumpable=False, may_open=False), False, "undumpable"),
    ],
)
def test_each_obstacle_is_named_with_what_removes_it(
    facts: AccessFacts, is_general: bool, words: str
) -> None:
    check = tracing_check(facts, is_general=is_general)

    assert check.state == "warning"
    assert words in check.meaning
    assert check.fix
    assert "/proc is shown all the same" in check.meaning


def test_the_capability_overcomes_scope_and_owner() -> None:
    able = replace(FREE, capabilities=ABLE, yama_scope=2, uids=(0,) * 4)

    assert tracing_check(able, is_general=True).state == "ok"
    assert tracing_check(able, is_general=False).state == "ok"


def test_a_process_that_has_gone_cannot_be_traced() -> None:
    check = tracing_check(replace(FREE, may_open=None), is_general=False)

    assert check.meaning.startswith("The process has exited.")


def test_this_process_is_read_as_it_is() -> None:
    assert tracing(os.getpid()).state == "ok"


def test_the_hook_takes_the_first_folder_it_may_use(tmp_path: Path) -> None:
    runtime = tmp_path / "run"
    runtime.mkdir()

    check = hook_folder(os.geteuid(), str(runtime))

    assert (check.state, check.value) == ("ok", f"{runtime}/mpwatch")


def test_a_symbolic_link_is_refused_and_the_next_folder_taken(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "tmp").mkdir()
    (tmp_path / "run" / "mpwatch").symlink_to(tmp_path)

    check = hook_folder(os.geteuid(), "/run", str(tmp_path))

    assert (check.state, check.value) == ("ok", f"/tmp/mpwatch-{os.geteuid()}")


def test_without_a_usable_folder_each_reason_is_shown(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mpwatch").write_text("")

    check = hook_folder(os.geteuid(), "/run", str(tmp_path))

    assert check.state == "warning"
    assert "/run/mpwatch is not a directory" in check.value
    assert "cannot be made" in check.value


def test_the_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tmp" / "mpwatch-4242").mkdir(parents=True)

    check = hook_folder(4242, None, str(tmp_path))

    assert f"belongs to uid {os.geteuid()}" in check.value
