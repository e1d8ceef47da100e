from __future__ import annotations

import os

import pytest

from mpwatch.collect.process import identify as errors
from mpwatch.collect.process.identify import identify, is_python_exe, python_version
from mpwatch.collect.process.procfs import parse_stat, read_bytes_of, read_cmdline
from tests.unit.collect.conftest import FakeProc


def test_a_python_process_is_named_by_pid_and_start(proc: FakeProc) -> None:
    proc.process(42, start=777)

    assert identify(42, str(proc)) == (42, 777)


def test_an_unused_pid_is_reported_as_no_process(proc: FakeProc) -> None:
    with pytest.raises(errors.NoSuchProcess, match="There is no process 4242") as caught:
        identify(4242, str(proc))

    assert caught.value.exit_code == 3
    assert caught.value.fix.startswith("mpwatch ps")


def test_a_thread_is_traced_to_its_process(proc: FakeProc) -> None:
    proc.process(43)
    status = (proc.root / "43/status").read_text().replace("Tgid:\t43", "Tgid:\t42")
    proc.write("43/status", status)

    with pytest.raises(errors.IsThread, match="43 is a thread of process 42") as caught:
        identify(43, str(proc))

    assert (caught.value.tid, caught.value.pid) == (43, 42)
    assert caught.value.fix == "mpwatch attach 42"
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(("state", "flags"), [("Z", 0), ("R", 0x4)])
def test_a_process_that_has_ended_leads_to_its_parent(
    proc: FakeProc, state: str, flags: int
) -> None:
    proc.process(42, parent=40, state=state, flags=flags, exe=None)

    with pytest.raises(errors.IsZombie, match="has exited") as caught:
        identify(42, str(proc))

    assert caught.value.fix == "mpwatch attach 40"
    assert caught.value.exit_code == 3


def test_another_program_is_called_by_its_name(proc: FakeProc) -> None:
    proc.process(42, name="sshd", exe="/usr/sbin/sshd")

    with pytest.raises(errors.NotPython, match="Process 42 runs sshd, not Python") as caught:
        identify(42, str(proc))

    assert caught.value.exit_code == 5


def test_in_a_container_a_process_that_is_not_there_may_be_in_another(proc: FakeProc) -> None:
    proc.write("self/mountinfo", "501 480 0:61 / / rw,relatime - overlay overlay rw\n")
    with pytest.raises(errors.NoSuchProcess) as caught:
        identify(4242, str(proc))

    assert "--pid=container:NAME" in caught.value.fix


def test_a_program_with_python_inside_counts_as_python(proc: FakeProc) -> None:
    line = "7f0-7f1 r-xp 0 08:01 5 /usr/lib/libpython3.12.so.1.0\n"
    proc.process(42, name="uwsgi", exe="/usr/bin/uwsgi", maps=line)

    assert identify(42, str(proc)).pid == 42
    assert python_version(str(proc), 42, "/usr/bin/uwsgi") == "3.12"


def test_a_hidden_executable_is_a_matter_of_permission(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc.process(42, uid=1)

    def refuse(path: str) -> str:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "readlink", refuse)
    with pytest.raises(errors.NotPermitted, match="it belongs to") as caught:
        identify(42, str(proc))

    assert caught.value.exit_code == 4
    assert "mpwatch attach 42" in caught.value.fix
    assert identify(42, str(proc), may_be_hidden=True).pid == 42


def test_what_is_hidden_and_not_called_like_python_is_refused_to_all(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc.process(42, uid=1, cmdline=("/usr/bin/node", "python"))

    def refuse(path: str) -> str:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "readlink", refuse)
    with pytest.raises(errors.NotPermitted):
        identify(42, str(proc), may_be_hidden=True)


@pytest.mark.parametrize(
    ("exe", "is_python"),
    [
        ("/usr/bin/python3.11", True),
        ("/opt/conda/bin/python", True),
        ("/usr/bin/python3.13t", True),
        ("/usr/bin/python3.11 (deleted)", True),
        ("/usr/bin/pypy3.10", True),
        ("/usr/bin/pythonw-launcher", False),
        ("/usr/bin/bpython", False),
        ("/usr/bin/node", False),
    ],
)
def test_interpreters_are_known_by_their_names(exe: str, is_python: bool) -> None:
    assert is_python_exe(exe) == is_python


def test_a_name_with_parentheses_and_newlines_does_not_shift_the_fields() -> None:
    line = FakeProc.stat(42, 7, b"a) R 1 (b\n\x1b[31m\xff", "S", start=99)

    stat = parse_stat(line)

    assert (stat.pid, stat.parent_pid, stat.state, stat.start_ticks) == (42, 7, "S", 99)
    assert stat.name.isprintable()
    assert "\x1b" not in stat.name


@pytest.mark.parametrize(
    ("state", "flags", "has_ended"),
    [("S", 0x40, False), ("R", 0x400004, True), ("D", 0x4, True), ("Z", 0x4, True), ("Z", 0, True)],
)
def test_a_process_has_ended_from_the_beginning_of_its_exit(
    state: str, flags: int, has_ended: bool
) -> None:
    assert parse_stat(FakeProc.stat(42, state=state, parent=7, flags=flags)).has_ended == has_ended


@pytest.mark.parametrize("line", [b"", b"42", b"42 (x) S 1", b"42 x S 1 2 3"])
def test_a_line_that_is_cut_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match="no stat line"):
        parse_stat(line)


def test_a_command_line_of_a_megabyte_is_bounded_and_clean(proc: FakeProc) -> None:
    proc.process(42, cmdline=("python", "-c", "x" * 1_000_000, "\x1b]0;owned\x07", *("y",) * 500))

    cmdline = read_cmdline(str(proc), 42)

    assert len(cmdline) <= 65
    assert sum(map(len, cmdline)) < 65 * 257
    assert all(argument.isprintable() for argument in cmdline)


def test_many_arguments_end_in_an_ellipsis(proc: FakeProc) -> None:
    proc.process(42, cmdline=("python", *map(str, range(500))))

    cmdline = read_cmdline(str(proc), 42)

    assert cmdline[-1] == "…"
    assert cmdline[1] == "0"


def test_bytes_read_are_those_of_all_system_calls_not_of_the_disk() -> None:
    assert read_bytes_of(b"rchar: 12\nwchar: 3\nread_bytes: 4096\n") == 12
    assert read_bytes_of(b"") is None
