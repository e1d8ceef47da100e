"""The log of injections and detaches: its lines, its bounds and its errors."""

from __future__ import annotations

import os
import pwd
import re
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

import mpwatch
from mpwatch.attach.injection_log import (
    LIMIT_BYTES,
    NO_RESULT,
    Entry,
    InjectionLog,
    default_folder,
)
from mpwatch.attach.outcomes import Attached, Detached
from mpwatch.hook import wire
from mpwatch.model.ids import ProcessId

TARGET = ProcessId(4242, 99)
READY = Attached(TARGET, "ready", "pending call", stopped_s=0.000712)


def lines(log: InjectionLog) -> list[str]:
    return Path(log.path).read_text().splitlines()


def inject(log: InjectionLog, attached: Attached = READY, command: Iterable[str] = ()) -> None:
    """Log an injection."""
    log.injecting(attached.process, "pending call")
    log.injected(attached, command)


@pytest.fixture
def log(tmp_path: Path) -> InjectionLog:
    return InjectionLog(str(tmp_path / "state" / "mpwatch"))


def test_a_line_has_time_user_process_and_result(log: InjectionLog) -> None:
    inject(log, READY, ["python", "train.py"])
    log.detached(Detached(TARGET, "absent", method="socket"), ["python", "train.py"])

    assert log.problem is None
    injected, detach = lines(log)
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d inject ", injected)
    assert f" uid={os.getuid()} user=" in injected
    assert f" mpwatch={os.getpid()} pid=4242 start_ticks=99 " in injected
    assert ' method="pending call" ' in injected
    assert re.search(r" hook=\d+\.\d+\.\d+/[0-9a-f]{8} ", injected)
    assert ' stopped_ms=0.712 result=ready command="python train.py"' in injected
    assert " detach " in detach
    assert " method=socket " in detach
    assert " stopped_ms=none result=detached " in detach


def test_the_release_of_the_hook_is_that_of_mpwatch() -> None:
    assert mpwatch.__version__ == wire.RELEASE


def test_what_is_under_way_is_kept_beside_the_log(log: InjectionLog) -> None:
    log.injecting(TARGET, "pending call")
    log.injecting(TARGET, "pending call")  # after a temporary obstacle
    (begun,) = log.entries_about(TARGET, 9)
    assert " inject " in begun.line
    assert " stopped_ms=unknown result=begun " in begun.line
    assert not begun.is_over
    assert not os.path.exists(log.path)

    log.injected(READY, None)
    log.detaching(TARGET, "socket", "0.0.7/abc")
    assert [each.is_over for each in log.entries_about(TARGET, 9)] == [True, False]

    log.detached(Detached(TARGET, "absent", method="socket", hook="0.0.7/abc"), None)
    done = log.entries_about(TARGET, 9)
    assert [each.line.split()[1] for each in done] == ["inject", "detach"]
    assert " hook=0.0.7/abc " in done[1].line
    assert [each.line for each in done] == lines(log)
    assert os.listdir(os.path.dirname(log.path)) == ["attach.log"]


def test_a_refusal_after_it_has_begun_is_a_result(log: InjectionLog) -> None:
    log.injecting(TARGET, "pending call")
    log.injected(Attached(TARGET, "absent", reason="it is stopped"), [])
    log.detaching(TARGET, "socket", "")
    log.detached(Detached(TARGET, "absent", "the process has ended"), [])

    injected, detached = lines(log)
    assert ' result="absent: it is stopped" ' in injected
    assert " hook=unknown " in detached


# Begins two actions and ends one, then is killed: before or after the line of the latter.
KILLED = """
import os, signal, sys
from mpwatch.attach.injection_log import InjectionLog
from mpwatch.attach.outcomes import Attached
from mpwatch.model.ids import ProcessId

first, second = ProcessId(4242, 99), ProcessId(4243, 99)
log = InjectionLog(sys.argv[1])
log.injecting(first, "pending call")
log.injecting(second, "pending call")
if sys.argv[2] == "after":
    log.injected(Attached(second, "ready", "pending call", stopped_s=0.1), [])
if sys.argv[2] == "in between":
    class Dying:
        def remove(self, folder):
            os.kill(os.getpid(), signal.SIGKILL)
    log._begun = Dying()
    log.close()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("when", ["before", "after", "in between"])
@pytest.mark.parametrize("how", ["next line", "asked for"])
def test_the_line_of_a_killed_mpwatch_is_written_by_the_next_one(
    log: InjectionLog, when: str, how: str
) -> None:
    folder = os.path.dirname(log.path)
    killed = subprocess.run([sys.executable, "-c", KILLED, folder, when], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(os.listdir(folder)) == (1 if when == "before" else 2)
    before = [*log.entries_about(TARGET, 9), *log.entries_about(ProcessId(4243, 99), 9)]
    assert all(each.is_over for each in before)

    other = ProcessId(7, 1)
    if how == "next line":
        inject(log, Attached(other, "ready", "pending call"))
    else:
        log.recover()

    assert log.problem is None
    found = [line for line in lines(log) if f" pid={other.pid} " not in line]
    assert sorted(" pid=4242 " in line for line in found) == [False, True]
    (lost,) = (line for line in found if " pid=4242 " in line)
    (ended,) = (line for line in found if " pid=4243 " in line)
    assert f' stopped_ms=unknown result="{NO_RESULT}" ' in lost
    assert (NO_RESULT in ended) == (when != "after")
    assert f" mpwatch={os.getpid()} " not in lost
    assert os.listdir(folder) == ["attach.log"]
    assert [*log.entries_about(TARGET, 9), *log.entries_about(ProcessId(4243, 99), 9)] == before
    log.recover()
    assert len(lines(log)) == len(found) + (how == "next line")


def test_what_another_mpwatch_is_doing_is_left_to_it(log: InjectionLog) -> None:
    other = InjectionLog(os.path.dirname(log.path))
    other.injecting(TARGET, "pending call")
    log.recover()
    inject(log, Attached(ProcessId(7, 1), "ready", "pending call"))
    (entry,) = log.entries_about(TARGET, 9)
    assert not entry.is_over

    other.injected(READY, [])
    assert [" result=ready " in each.line for each in log.entries_about(TARGET, 9)] == [True]
    assert len(lines(log)) == 2


def test_two_that_recover_at_once_write_one_line(log: InjectionLog) -> None:
    log.injecting(TARGET, "pending call")
    folder = Path(log.path).parent
    (kept,) = folder.iterdir()
    text = kept.read_text()
    log.injected(READY, [])
    for round_ in range(20):
        (folder / f"{kept.name}{round_}").write_text(text.replace("4242", str(round_ + 1)))
        both = [threading.Thread(target=InjectionLog(str(folder)).recover) for _ in range(4)]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()

    assert len(lines(log)) == 21
    assert sorted(os.listdir(folder)) == ["attach.log"]


def test_what_is_interrupted_has_its_line_at_once(log: InjectionLog) -> None:
    log.injecting(TARGET, "pending call")
    log.close()
    log.injected(READY, [])  # of a thread that has not noticed

    (line,) = lines(log)
    assert NO_RESULT in line


def test_the_last_line_of_one_killed_while_it_wrote_that_is_not_used(log: InjectionLog) -> None:
    log.injecting(TARGET, "pending call")
    folder = Path(log.path).parent
    (kept,) = folder.iterdir()
    text = kept.read_text()
    log.close()
    kept.write_text(text.replace("4242", "4243") + text.replace("4242", "4244")[:-9])
    log.recover()

    assert [line.partition(" pid=")[2][:4] for line in lines(log)] == ["4242", "4243"]


@pytest.mark.parametrize("kind", ["link", "hard link", "fifo"])
def test_a_kept_line_that_is_no_file_of_mpwatch_is_left_alone(
    log: InjectionLog, tmp_path: Path, kind: str
) -> None:
    log.injecting(TARGET, "pending call")
    folder = Path(log.path).parent
    (kept,) = folder.iterdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text(kept.read_text())
    log.injected(READY, [])
    if kind == "link":
        kept.symlink_to(elsewhere)
    elif kind == "hard link":
        os.link(elsewhere, kept)
    else:
        os.mkfifo(kept)
    log.recover()

    assert len(lines(log)) == 1
    assert kept.name in os.listdir(folder)
    assert len(log.entries_about(TARGET, 9)) == 1


def test_a_result_that_could_not_be_written_is_written_by_the_next_one(
    log: InjectionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.injecting(TARGET, "pending call")
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda file, content: write(file, content[:7]))
        log.injected(READY, [])
    assert log.problem is not None
    Path(log.path).unlink()  # the seven characters

    InjectionLog(os.path.dirname(log.path)).recover()

    (line,) = lines(log)
    assert NO_RESULT in line


def test_an_untouched_process_has_no_line(log: InjectionLog) -> None:
    log.injected(Attached(TARGET, "absent", reason="it is stopped"), [])
    log.injected(Attached(TARGET, "ready", "already there"), [])
    log.injected(Attached(TARGET, "pending", "pending call"), [])  # of an earlier injection
    log.detached(Detached(TARGET, "absent"), [])

    assert not os.path.exists(log.path)
    assert log.problem is None


def test_file_and_directory_are_private(log: InjectionLog) -> None:
    os.makedirs(os.path.dirname(log.path), 0o755)
    Path(log.path).touch(0o644)
    inject(log)

    assert stat.S_IMODE(os.stat(log.path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(log.path)).st_mode) == 0o700


def test_hostile_text_stays_within_its_line_and_its_field(log: InjectionLog) -> None:
    other = ProcessId(7, 1)
    forged = f'x" pid={other.pid} start_ticks=1 method=none\n2026 inject \x1b]52;c;x\x07\u202e\x00'
    pending = Attached(TARGET, "pending", "pending call", reason=forged)
    inject(log, pending, [forged, "y" * 9999])

    (line,) = lines(log)
    assert line.isascii()
    assert line.isprintable()
    assert len(line) < 2000
    assert log.entries_about(other, 5) == []
    assert log.entries_about(TARGET, 5) == [Entry(line)]


@pytest.mark.parametrize("kind", ["folder", "file", "hard link", "fifo"])
def test_a_log_prepared_by_another_user_is_not_written(
    log: InjectionLog, tmp_path: Path, kind: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    folder = Path(log.path).parent
    folder.parent.mkdir()
    if kind == "folder":
        elsewhere.mkdir()
        folder.symlink_to(elsewhere)
    else:
        folder.mkdir()
        elsewhere.write_text("precious")
        if kind == "file":
            Path(log.path).symlink_to(elsewhere)
        elif kind == "hard link":
            os.link(elsewhere, log.path)
        else:
            os.mkfifo(log.path)

    inject(log)

    assert log.problem is not None
    assert log.path in log.problem
    if kind == "folder":
        assert list(elsewhere.iterdir()) == []
    else:
        assert elsewhere.read_text() == "precious"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
def test_no_log_is_written_in_a_directory_of_another_user(log: InjectionLog) -> None:
    """Who owns the directory can replace the log, also while it is being written."""
    folder = Path(log.path).parent
    folder.mkdir(parents=True, mode=0o700)
    os.chown(folder, 1001, 1001)

    inject(log)

    assert log.problem == f"{log.path} cannot be written: its directory belongs to uid 1001"
    assert list(folder.iterdir()) == []


def test_it_is_rotated_once_and_stays_bounded(log: InjectionLog) -> None:
    folder = Path(log.path).parent
    folder.mkdir(parents=True, mode=0o700)
    for _ in range(2):
        Path(log.path).write_text("old\n" * (LIMIT_BYTES // 4))
        inject(log)

    assert sorted(each.name for each in folder.iterdir()) == ["attach.log", "attach.log.1"]
    assert len(lines(log)) == 1
    assert os.path.getsize(f"{log.path}.1") <= LIMIT_BYTES
    assert [each.line for each in log.entries_about(TARGET, 5)] == lines(log)


def test_a_full_disk_is_reported_and_prevents_nothing(
    log: InjectionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_file: int, _content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    inject(log)

    assert log.problem == f"{log.path} cannot be written: No space left on device"


def test_a_home_that_cannot_be_written_is_reported_and_prevents_nothing(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("not a directory")
    log = InjectionLog(str(tmp_path / "home" / "state" / "mpwatch"))
    inject(log)

    assert log.problem is not None
    assert log.entries_about(TARGET, 5) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be led elsewhere by a user")
@pytest.mark.parametrize("is_link", [False, True])
def test_root_writes_no_log_where_a_user_leads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_link: bool
) -> None:
    """As under `sudo -E`, with the variables of the user."""
    own, of_user = tmp_path / "own", tmp_path / "user"
    own.mkdir()
    of_user.symlink_to(own) if is_link else of_user.mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(of_user / "state"))
    assert default_folder() == str(of_user / "state" / "mpwatch")

    os.chown(of_user, 1001, 1001, follow_symlinks=False)

    assert default_folder() == os.path.join(pwd.getpwuid(0).pw_dir, ".local/state/mpwatch")
