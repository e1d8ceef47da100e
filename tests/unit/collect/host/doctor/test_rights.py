"""Checks of the right to trace, and of the directories for the hook's files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

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

    assert f"belongs to user {os.geteuid()}" in check.value


@pytest.mark.parametrize(
    ("mode", "uid", "reason"),
    [
        (0o700, 4242, None),
        (0o755, 4242, "is open to other users"),
        (0o710, 4242, "is open to other users"),
        (0o500, 4242, "is not writable"),
        (0o600, 4242, "is not writable"),
        (0o500, 0, None),
    ],
)
def test_a_folder_is_refused_for_what_the_hook_refuses_it_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, uid: int, reason: str | None
) -> None:
    folder = tmp_path / "tmp" / f"mpwatch-{uid}"
    folder.mkdir(parents=True)
    status = [stat.S_IFDIR | mode, 1, 1, 1, uid, uid, 0, 0, 0, 0]
    monkeypatch.setattr("mpwatch.collect.host.doctor.os.lstat", lambda _: os.stat_result(status))

    check = hook_folder(uid, None, str(tmp_path))

    assert check.state == ("ok" if reason is None else "warning")
    assert reason is None or reason in check.value


def test_a_folder_with_too_long_a_path_is_refused(tmp_path: Path) -> None:
    runtime = "/" + "r" * 90
    (tmp_path / runtime[1:]).mkdir()
    (tmp_path / "tmp").mkdir()

    check = hook_folder(os.geteuid(), runtime, str(tmp_path))

    assert (check.state, check.value) == ("ok", f"/tmp/mpwatch-{os.geteuid()}")
