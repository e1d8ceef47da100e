"""The log of injections and detaches: its lines, its bounds and its errors."""

from __future__ import annotations

import os
import pwd
import re
import stat
from collections.abc import Iterable
from pathlib import Path

import pytest

import mpwatch
from mpwatch.attach.injection_log import LIMIT_BYTES, InjectionLog, default_folder, is_completed
from mpwatch.attach.outcomes import Attached, Detached
from mpwatch.hook import wire
from mpwatch.model.ids import ProcessId

TARGET = ProcessId(4242, 99)
READY = Attached(TARGET, "ready", "pending call", stopped_s=0.000712)


def lines(log: InjectionLog) -> list[str]:
    return Path(log.path).read_text().splitlines()


def inject(log: InjectionLog, attached: Attached = READY, command: Iterable[str] = ()) -> None:
    """Log both lines of an injection."""
    log.injecting(attached.process, "pending call")
    log.injected(attached, command)


@pytest.fixture
def log(tmp_path: Path) -> InjectionLog:
    return InjectionLog(str(tmp_path / "state" / "mpwatch"))


def test_a_line_has_time_user_process_and_result(log: InjectionLog) -> None:
    inject(log, READY, ["python", "train.py"])
    log.detached(Detached(TARGET, "absent", method="socket"), ["python", "train.py"])

    assert log.problem is None
    _, injected, detach = lines(log)
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


def test_a_result_takes_the_place_of_the_line_from_before(log: InjectionLog) -> None:
    log.injecting(TARGET, "pending call")
    (begun,) = log.lines_about(TARGET, 9)
    assert " injecting " in begun
    assert " result=begun " in begun
    assert not is_completed(begun)

    log.injected(READY, None)
    log.detaching(TARGET, "socket", "0.0.7/abc")
    assert [is_completed(line) for line in log.lines_about(TARGET, 9)] == [True, False]

    log.detached(Detached(TARGET, "absent", method="socket", hook="0.0.7/abc"), None)
    done = log.lines_about(TARGET, 9)
    assert [line.split()[1] for line in done] == ["inject", "detach"]
    assert " hook=0.0.7/abc " in done[1]
    assert len(lines(log)) == 4


def test_a_refusal_after_the_line_from_before_is_a_result(log: InjectionLog) -> None:
    log.injecting(TARGET, "pending call")
    log.injected(Attached(TARGET, "absent", reason="it is stopped"), [])
    log.detaching(TARGET, "socket", "")
    log.detached(Detached(TARGET, "absent", "the process has ended"), [])

    done = log.lines_about(TARGET, 9)
    assert all(map(is_completed, done))
    assert ' result="absent: it is stopped" ' in done[0]
    assert " hook=unknown " in done[1]


def test_a_line_of_another_mpwatch_completes_nothing(log: InjectionLog) -> None:
    log.injecting(TARGET, "pending call")
    text = Path(log.path).read_text()
    Path(log.path).write_text(text.replace(f"mpwatch={os.getpid()}", "mpwatch=1"))
    log.injecting(TARGET, "pending call")
    log.injected(READY, [])

    assert [is_completed(line) for line in log.lines_about(TARGET, 9)] == [False, True]


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

    _, line = lines(log)
    assert line.isascii()
    assert line.isprintable()
    assert len(line) < 2000
    assert log.lines_about(other, 5) == []
    assert log.lines_about(TARGET, 5) == [line]


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


def test_it_is_rotated_once_and_stays_bounded(log: InjectionLog) -> None:
    folder = Path(log.path).parent
    folder.mkdir(parents=True, mode=0o700)
    for _ in range(2):
        Path(log.path).write_text("old\n" * (LIMIT_BYTES // 4))
        inject(log)

    assert sorted(each.name for each in folder.iterdir()) == ["attach.log", "attach.log.1"]
    assert len(lines(log)) == 2
    assert os.path.getsize(f"{log.path}.1") <= LIMIT_BYTES
    assert log.lines_about(TARGET, 5) == lines(log)[1:]


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
    assert log.lines_about(TARGET, 5) == []


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
