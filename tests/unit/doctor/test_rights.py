"""Who may trace, and where hooks may put their files."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from mpwatch.collect.doctor_rights import Tracing, hook_folder, read_tracing, tracing

FREE = Tracing(uid=1000, has_capability=False, yama_scope=0, is_call_blocked=False)


def test_a_plain_machine_lets_a_user_trace_their_own() -> None:
    check = tracing(FREE)

    assert check.state == "ok"
    assert check.value == "uid 1000, CAP_SYS_PTRACE no, Yama scope 0, seccomp allows ptrace"


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (replace(FREE, is_call_blocked=True), "seccomp"),
        (replace(FREE, yama_scope=1), "only its own children"),
        (replace(FREE, yama_scope=3, has_capability=True), "until the next boot"),
        (replace(FREE, owner=0), "belongs to uid 0"),
        (replace(FREE, owner=1000, tracer_pid=77), "Process 77 traces it already"),
        (replace(FREE, owner=1000, may_open_memory=False), "not dumpable"),
    ],
)
def test_each_obstacle_is_named_with_what_removes_it(found: Tracing, words: str) -> None:
    check = tracing(found)

    assert check.state == "warning"
    assert words in check.meaning
    assert check.fix


def test_the_capability_overcomes_scope_and_owner() -> None:
    able = replace(FREE, has_capability=True, yama_scope=2, owner=0)

    assert tracing(able).state == "ok"


def test_this_process_is_read_as_it_is() -> None:
    found = read_tracing(os.getpid())

    assert found.uid == found.owner == os.geteuid()
    assert found.tracer_pid == 0
    assert found.may_open_memory is True


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


def test_when_no_folder_will_do_each_reason_is_said(tmp_path: Path) -> None:
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
