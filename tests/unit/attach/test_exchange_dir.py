from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from mpwatch.attach.outcomes import PayloadAnswer, Refused
from mpwatch.attach.payload import exchange_dir, install
from mpwatch.attach.payload.compiled_payload import installed
from mpwatch.attach.target import Target
from mpwatch.model.ids import ProcessId
from tests import procfs

PROC = "proc"


@pytest.fixture
def proc(tmp_path: Path) -> str:
    """A procfs of one process, whose root is a directory of the test."""
    (tmp_path / PROC / "42").mkdir(parents=True)
    (tmp_path / "root" / "run").mkdir(parents=True)
    (tmp_path / "root" / "tmp").mkdir()
    (tmp_path / PROC / "42" / "root").symlink_to(tmp_path / "root")
    return str(tmp_path / PROC)


TARGET = Target(
    process=ProcessId(42, 7), name="python", state="S", tracer_pid=0, uid=os.getuid(),
    gid=os.getgid(), groups=frozenset((os.getgid(),)), uid_inside=1000, pid_inside=5,
    exe="/usr/bin/python3", environment={"XDG_RUNTIME_DIR": "/run"}, shares_files=False,
    shares_pids=False, has_shadow_stack=False,
)  # fmt: skip


def create(proc: str, target: Target = TARGET) -> exchange_dir.ExchangeDir:
    runtime = exchange_dir.runtime_directory(target, proc)
    return exchange_dir.create(target, runtime, b"payload", proc)


def test_the_directory_is_private_and_is_removed_with_its_files(proc: str, tmp_path: Path) -> None:
    made = create(proc)
    assert (made.path, made.is_ours) == ("/run/mpwatch/attach-5-7", True)
    folder = tmp_path / "root/run/mpwatch/attach-5-7"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "payload").read_bytes() == b"payload"
    assert {p.stat().st_mode & 0o777 for p in folder.iterdir()} == {0o600}
    made.remove()
    assert list((tmp_path / "root/run/mpwatch").iterdir()) == []


@pytest.mark.parametrize(("shares", "left"), [(True, 0), (False, 1)])
def test_the_directory_of_a_target_that_has_just_ended_is_removed_where_both_see_it(
    proc: str, tmp_path: Path, shares: bool, left: int
) -> None:
    target = replace(TARGET, shares_files=shares, shares_pids=shares)
    made = create(proc, target)
    os.rename(f"{proc}/42", f"{proc}/{os.getpid()}")  # the target is gone; this process is there

    made.remove()

    assert len(list((tmp_path / "root" / made.runtime.lstrip("/")).iterdir())) == left


@pytest.mark.parametrize("name", ["handed-over", "result"])
def test_a_fifo_of_the_targets_user_in_the_directory_is_not_waited_for(
    proc: str, tmp_path: Path, name: str
) -> None:
    made = create(proc)
    fifo = tmp_path / "root" / made.path.lstrip("/") / name
    os.mkfifo(fifo)

    def use() -> None:
        made.mark("handed-over", 1)
        made.answer()

    user = threading.Thread(target=use, daemon=True)
    user.start()
    user.join(60)

    assert not user.is_alive()
    assert fifo.is_fifo()


def test_no_link_in_the_directory_is_followed(proc: str, tmp_path: Path) -> None:
    """The observer may be root, and what it reads and writes here is the target's user's."""
    made = create(proc)
    folder = tmp_path / "root" / made.path.lstrip("/")
    others = tmp_path / "others"
    others.write_text('{"state": "loaded", "reason": "a secret"}')
    for name in ("result", "handed-over"):
        (folder / name).symlink_to(others)

    made.mark("handed-over", 17)

    assert made.answer() is None
    assert others.read_text() == '{"state": "loaded", "reason": "a secret"}'


def test_no_descriptor_stays_open(proc: str, tmp_path: Path) -> None:
    made = create(proc)
    made.mark("handed-over", 17)
    (tmp_path / "root" / made.path.lstrip("/") / "result").write_text("{}")
    assert made.answer_within(0.0) is not None
    assert made.renew()
    made.remove()
    assert exchange_dir.find(TARGET, proc) is None
    with pytest.raises(Refused):
        create(proc, replace(TARGET, uid=os.getuid() + 1))

    assert not any(link.startswith(str(tmp_path)) for link in procfs.links(os.getpid()))


def test_the_answer_is_read_from_the_directory_and_a_removed_directory_is_success(
    proc: str, tmp_path: Path
) -> None:
    made = create(proc)
    assert made.answer() is None
    result = tmp_path / "root/run/mpwatch/attach-5-7/result"
    result.write_text('{"state": "failed", "reason": "no \\u001b[31mmemory", "other": "x"}')
    answer = made.answer()
    assert answer is not None
    assert answer.state == "failed"
    assert "memory" in answer.reason
    assert "\x1b" not in answer.reason
    assert not answer.is_success
    made.remove()
    assert made.answer() == PayloadAnswer("done")


@pytest.mark.parametrize(
    "raw", [b"", b"done", b"[]", b"{", b'{"state": 1}', b"\xff", b"[" * 4000, b'{"state": ["a"]}']
)
def test_a_malformed_answer_is_a_failure(proc: str, tmp_path: Path, raw: bytes) -> None:
    made = create(proc)
    (tmp_path / "root/run/mpwatch/attach-5-7/result").write_bytes(raw)
    assert made.answer() == PayloadAnswer("failed", "its answer is malformed")


def test_a_second_observer_finds_the_directory_of_the_first(proc: str, tmp_path: Path) -> None:
    first, second = create(proc), create(proc)
    assert (first.is_ours, second.is_ours) == (True, False)
    assert second.handed_over_at() is None
    first.mark("handed-over", 17)
    assert second.handed_over_at() == 17
    assert [p.name for p in (tmp_path / "root/run/mpwatch").iterdir()] == ["attach-5-7"]


def test_directories_of_dead_processes_are_swept_and_others_stay(proc: str, tmp_path: Path) -> None:
    runtime = tmp_path / "root/run/mpwatch"
    runtime.mkdir(mode=0o700)
    for name in ("attach-77-1", "attach-78-9"):
        (runtime / name).mkdir()
        (runtime / name / "payload").touch()
    (tmp_path / PROC / "78").mkdir()
    (tmp_path / PROC / "78" / "stat").write_text("78 (python) S" + " 0" * 18 + " 9 0 0")
    create(proc, replace(TARGET, shares_pids=True))
    assert sorted(p.name for p in runtime.iterdir()) == ["attach-5-7", "attach-78-9"]


def test_a_directory_open_to_others_or_behind_a_link_is_never_used(
    proc: str, tmp_path: Path
) -> None:
    (tmp_path / "root/run/mpwatch").mkdir()
    (tmp_path / "root/run/mpwatch").chmod(0o777)
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "root/tmp/mpwatch-1000").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refused, match=r"open to other users.*not a directory"):
        create(proc)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_directory_of_another_user_is_never_used(proc: str, tmp_path: Path) -> None:
    for ours in ("run/mpwatch", "tmp/mpwatch-1000"):
        (tmp_path / "root" / ours).mkdir(mode=0o700)
    other = replace(TARGET, uid=os.getuid() + 1)
    with pytest.raises(Refused, match=f"belongs to uid {os.getuid()}"):
        exchange_dir.runtime_directory(other, proc)


def test_no_path_leads_out_of_the_root_of_a_target(proc: str, tmp_path: Path) -> None:
    """As that of a target in a chroot, above which `..` is the rest of the machine."""
    (tmp_path / "run").mkdir()
    outside = replace(TARGET, environment={"XDG_RUNTIME_DIR": "/run/../../run"})
    assert create(proc, outside).path == "/tmp/mpwatch-1000/attach-5-7"
    assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root acts as another user")
@pytest.mark.parametrize("is_member", [False, True])
def test_what_a_group_of_the_observer_may_write_is_not_written_for_another_user(
    proc: str, tmp_path: Path, is_member: bool
) -> None:
    """Root may be a member of groups that give the target's user nothing, and the reverse."""
    folder, own = tmp_path / "root/run", os.getgroups()
    os.chown(folder, 0, 4711)
    folder.chmod(0o770)
    groups = frozenset((4242, 4711)) if is_member else frozenset((4242,))
    other = replace(TARGET, uid=4242, gid=4242, groups=groups)
    os.setgroups([] if is_member else [*own, 4711])
    try:
        if is_member:
            create(proc, other)
        else:
            with pytest.raises(Refused, match="Permission denied"):
                create(proc, other)
        assert os.getgroups() == ([] if is_member else [*own, 4711])
    finally:
        os.setgroups(own)
    assert len(list(folder.iterdir())) == is_member


def test_a_runtime_directory_that_is_opened_to_others_later_is_not_used_any_more(
    proc: str, tmp_path: Path
) -> None:
    made = create(proc)
    (tmp_path / "root/run/mpwatch/attach-5-7/result").write_text('{"state": "loaded"}')
    (tmp_path / "root/run/mpwatch").chmod(0o777)
    assert made.answer() is None
    with pytest.raises(Refused, match="open to other users"):
        exchange_dir.create(TARGET, "/run/mpwatch", b"", proc)


def test_a_target_that_cannot_see_this_installation_gets_a_copy_once(
    proc: str, tmp_path: Path
) -> None:
    first = install.directory_for(TARGET, proc)
    assert install.directory_for(TARGET, proc) == first
    copy = tmp_path / "root" / first.lstrip("/")
    assert (copy / "wire.py").read_bytes() == Path(installed(), "wire.py").read_bytes()
    assert (copy / "points" / "__init__.py").exists()
    install.remove_unused(TARGET, proc)
    assert not copy.exists()


def test_observers_that_copy_at_once_agree_and_leave_one_copy(proc: str, tmp_path: Path) -> None:
    ready, paths = threading.Barrier(6), []

    def copy() -> None:
        ready.wait()
        paths.append(install.directory_for(TARGET, proc))

    threads = [threading.Thread(target=copy) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(paths) == 6, paths
    assert [f"/run/mpwatch/{p.name}" for p in (tmp_path / "root/run/mpwatch").iterdir()] == [
        *{*paths}
    ]


def test_a_disk_that_fills_up_meanwhile_keeps_no_part(
    proc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = exchange_dir.runtime_directory(TARGET, proc)
    write, written = os.write, []

    def fill(fd: int, data: bytes) -> int:
        written.append(fd)
        if len(written) % 2 == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data[:3])

    monkeypatch.setattr(os, "write", fill)
    with pytest.raises(Refused, match="No space left"):
        exchange_dir.create(TARGET, runtime, b"payload", proc)
    with pytest.raises(Refused, match="No space left"):
        install.directory_for(TARGET, proc)
    assert list((tmp_path / "root/run/mpwatch").iterdir()) == []


@pytest.mark.parametrize("clean_up", ["attach", "detach"])
def test_parts_that_a_killed_observer_left_are_removed_once_they_are_old(
    proc: str, tmp_path: Path, clean_up: str
) -> None:
    runtime = tmp_path / "root" / exchange_dir.runtime_directory(TARGET, proc).lstrip("/")
    old_s = time.time() - exchange_dir.HIDDEN_STALE_S - 1
    for name in (".attach-9-9.1.1", ".hook-0123456789ab.1.1"):
        for age in ("old", "new"):
            (runtime / f"{name}{age}" / "points").mkdir(parents=True)
            (runtime / f"{name}{age}" / "points" / "__init__.py").touch()
        os.utime(runtime / f"{name}old", (old_s, old_s))

    if clean_up == "attach":
        create(proc).remove()
    else:
        install.remove_unused(TARGET, proc)

    assert sorted(p.name for p in runtime.iterdir()) == [
        ".attach-9-9.1.1new",
        ".hook-0123456789ab.1.1new",
    ]


@pytest.mark.parametrize("user", ["9-9.sock", "attach-9-9"])
def test_a_copy_stays_while_a_hook_is_attached_or_pending(
    proc: str, tmp_path: Path, user: str
) -> None:
    copy = tmp_path / "root" / install.directory_for(TARGET, proc).lstrip("/")
    (tmp_path / "root/run/mpwatch" / user).touch()
    install.remove_unused(TARGET, proc)
    assert copy.exists()


def test_a_target_that_may_read_this_installation_uses_it(proc: str) -> None:
    ours = replace(TARGET, shares_files=True)
    assert install.directory_for(ours, proc) == installed()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to another user")
@pytest.mark.parametrize(
    ("mode", "owner", "is_used"),
    [
        (0o755, 0, True),
        (0o775, 0, False),
        (0o757, 0, False),
        (0o755, 4242, True),
        (0o755, 77, False),
    ],
)
def test_an_installation_that_a_third_user_can_change_is_not_used(
    proc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, owner: int, is_used: bool
) -> None:
    base = Path("/run") / f"mpwatch-test-{os.getpid()}"
    shutil.copytree(installed(), base / "hook", ignore=shutil.ignore_patterns("__pycache__"))
    try:
        os.chown(base / "hook", owner, owner)
        (base / "hook").chmod(mode)
        monkeypatch.setattr(install, "installed", lambda: str(base / "hook"))
        target = replace(TARGET, shares_files=True, uid=4242, gid=4242, groups=frozenset((4242,)))
        monkeypatch.setattr(exchange_dir, "runtime_directory", lambda *_: "/nowhere")
        if is_used:
            assert install.directory_for(target, proc) == str(base / "hook")
        else:
            with pytest.raises(Refused, match="could not be copied to /nowhere"):
                install.directory_for(target, proc)
    finally:
        shutil.rmtree(base)


@pytest.mark.parametrize("free_blocks", [3, 1000])
def test_no_payload_is_written_to_a_disk_without_room_for_the_answer(
    proc: str, monkeypatch: pytest.MonkeyPatch, free_blocks: int
) -> None:
    disk = os.statvfs_result((4096, 4096, 2000, free_blocks, free_blocks, 9, 9, 9, 0, 255))
    monkeypatch.setattr(os, "fstatvfs", lambda fd: disk)
    runtime = exchange_dir.runtime_directory(TARGET, proc)
    if free_blocks == 1000:
        assert exchange_dir.create(TARGET, runtime, b"x" * 100_000, proc).is_ours
    else:
        with pytest.raises(Refused, match="nearly full"):
            exchange_dir.create(TARGET, runtime, b"x" * 100_000, proc)
