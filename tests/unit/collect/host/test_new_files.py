"""Files that the user of a job has made since the job began, counted by folder and name."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.collect.host import new_files as module
from mpwatch.collect.host.new_files import (
    LISTING_S,
    MAKERS_LIMIT,
    PAUSE_S,
    PLACES_S,
    SHM,
    NewFilesReader,
)
from mpwatch.model.host import FilesKey, NewFiles
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import FdKind, FdLink, FdSample, ProcSample
from tests.builders.samples import MAIN, sample
from tests.builders.short_lived import peak_bytes
from tests.unit.collect.conftest import FakeProc

UID = os.geteuid()
PID = 10
CWD = "/home/me/run"


class Job:
    """A job in a file system of its own, looked at every `LISTING_S`."""

    def __init__(self, proc: FakeProc, clock: Callable[[], float] = lambda: 0.0) -> None:
        self.root = proc.root / f"{PID}/root"
        self.proc = proc
        proc.process(PID)
        self.mount("/ ext4", "/dev/shm tmpfs")
        self.reader = NewFilesReader(str(proc), clock)
        self.at_s = 0.0
        (proc.root / f"{PID}/cwd").symlink_to(CWD)
        for folder in (SHM, "/tmp", CWD):
            (self.root / folder[1:]).mkdir(parents=True)

    def mount(self, *mounts: str) -> None:
        lines = (
            f"{n} 1 0:{n} / {point} rw - {type_} none rw"
            for n, (point, type_) in enumerate(map(str.split, mounts))
        )
        self.proc.write(f"{PID}/mountinfo", "\n".join(lines) + "\n")

    def make(self, *paths: str, size: int = 5000) -> None:
        for path in paths:
            file = self.root / path[1:]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(bytes(size))

    def remove(self, path: str) -> None:
        (self.root / path[1:]).unlink()

    def look(
        self,
        after_s: float = LISTING_S,
        *,
        tmp: str | None = None,
        uid: int = UID,
        since_s: float = 0,
    ) -> tuple[NewFiles, ...] | None:
        self.at_s += after_s
        return self.reader.read(PID, (), tmp, uid, since_s, self.at_s)

    def counts(self, after_s: float = LISTING_S, **how: float) -> dict[str, int]:
        found = self.look(after_s, uid=int(how.get("uid", UID)), since_s=how.get("since_s", 0))
        return {f"{each.key.folder}/{each.pattern}": each.total for each in found or ()}

    def note(self, *paths: str, kind: FdKind = "file", is_writable: bool | None = True) -> None:
        links = [FdLink(n, kind, path, None, is_writable) for n, path in enumerate(paths)]
        self.reader.note([with_links(links)])


def with_links(links: Sequence[FdLink], process: ProcessId = MAIN) -> ProcSample:
    fds = FdSample(len(links), 1024, 1024, {}, tuple(links), 0.0)
    return replace(sample(process, 0.0), fds=fds)


@pytest.fixture(autouse=True)
def every_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHOWN_LEAST", 1)


@pytest.fixture
def job(proc: FakeProc) -> Job:
    return Job(proc)


def test_files_are_counted_by_folder_and_by_what_their_names_have_in_common(job: Job) -> None:
    job.make(*(f"/dev/shm/stage_ab12cd34/shard-{n:06}.npy" for n in range(12)))
    job.make("/dev/shm/psm_0a1b2c3d", "/dev/shm/psm_99ffee00", "/dev/shm/sem.mp-a1b2c3d4")
    job.make(f"{CWD}/runs/tmp/tmpk2j3h4g5.gif", f"{CWD}/runs/tmp/tmp0_x9y8z7.gif")

    found = job.look()

    assert found is not None
    by_key = {each.key: each for each in found}
    shards = by_key[FilesKey("/dev/shm/stage_ab12cd34", "shard-*.npy")]
    assert (shards.total, shards.pattern) == (12, "shard-0000*.npy")
    assert shards.example.startswith("/dev/shm/stage_ab12cd34/shard-0000")
    assert (shards.is_memory, shards.is_shared, shards.kind) == (True, True, "file")
    assert shards.size_bytes >= 12 * 5000
    assert shards.file_system is not None
    blocks, semaphores = (by_key[FilesKey(SHM, group)] for group in ("psm_*", "sem.*"))
    assert (blocks.total, blocks.kind, blocks.pattern) == (2, "psm", "psm_*")
    assert (semaphores.total, semaphores.kind) == (1, "semaphore")
    clips = by_key[FilesKey(f"{CWD}/runs/tmp", "tmp*.gif")]
    assert (clips.total, clips.pattern, clips.is_memory, clips.is_shared) == (
        2, "tmp*.gif", False, False,
    )  # fmt: skip


def test_what_is_added_and_removed_is_seen_at_the_next_look(job: Job) -> None:
    job.make("/dev/shm/psm_a", "/dev/shm/psm_b")
    assert job.counts() == {"/dev/shm/psm_*": 2}

    job.make("/dev/shm/psm_c")
    job.remove("/dev/shm/psm_a")
    job.make("/dev/shm/psm_d")

    assert job.counts(LISTING_S - 1) == {"/dev/shm/psm_*": 2}
    assert job.counts(1) == {"/dev/shm/psm_*": 3}


def test_files_of_others_and_from_before_the_job_do_not_count(job: Job) -> None:
    job.make("/dev/shm/psm_a", f"{CWD}/out/part-1.txt")
    later_s = (job.root / "dev/shm/psm_a").stat().st_ctime + 1

    assert job.counts(uid=UID + 1) == {}
    assert job.counts(since_s=later_s) == {}


def test_folders_of_hooks_and_segments_of_torch_do_not_count(job: Job) -> None:
    job.make("/dev/shm/torch_10_1_2", "/tmp/mpwatch-1000/10.ring", "/tmp/pymp-ab/listener-1")

    assert job.counts() == {}


def test_a_folder_in_which_a_process_writes_is_found_with_the_process(job: Job) -> None:
    job.make("/data/made/clip-1.bin", "/data/other/clip-1.bin")
    job.note("/data/made/clip-1.bin", "/data/made/clip-2.bin (deleted)")
    job.note("/data/other/clip-1.bin", is_writable=False)
    job.note("/data/made/clip-3.bin")

    (found,) = job.look() or ()

    assert found.key == FilesKey("/data/made", "clip-*.bin")
    assert found.makers == ((MAIN.pid, 2),)


def test_a_list_of_descriptors_that_was_not_read_anew_counts_once(job: Job) -> None:
    job.make("/data/made/clip-1.bin")
    known = with_links([FdLink(3, "file", "/data/made/clip-1.bin", None, True)])
    job.reader.note([known])
    job.reader.note([known])

    (found,) = job.look() or ()

    assert found.makers == ((MAIN.pid, 1),)


@pytest.mark.parametrize("type_", ["nfs4", "fuse.sshfs", "lustre", "9p"])
def test_file_systems_that_may_not_answer_are_not_touched(
    job: Job, type_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.make(f"{CWD}/part-1.txt", f"{CWD}/part-2.txt")
    assert job.counts() == {f"{CWD}/part-*.txt": 2}

    job.mount("/ ext4", "/dev/shm tmpfs", f"/home {type_}")
    job.at_s += PLACES_S
    touched: list[str] = []
    real = os.stat

    def stat(path: str, **how: bool) -> os.stat_result:
        touched.append(str(path))
        return real(path, **how)

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", stat)
        assert job.counts() == {}
    assert touched
    assert not any("/home" in path for path in touched)


def test_a_very_long_folder_is_not_counted(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NAMES_LIMIT", 3)
    job.make(f"{CWD}/psm_a", f"{CWD}/psm_b", f"{CWD}/psm_c")
    assert job.counts() == {f"{CWD}/psm_*": 3}

    job.make(f"{CWD}/psm_d")

    assert job.counts() == {}


@pytest.mark.skipif(not os.access(SHM, os.W_OK), reason="needs a tmpfs")
def test_a_very_long_folder_in_a_tmpfs_is_estimated_by_its_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "NAMES_LIMIT", 100)
    with tempfile.TemporaryDirectory(dir=SHM) as folder:
        job = Job(FakeProc(Path(folder)))
        job.make(*(f"{SHM}/psm_{n}" for n in range(150)), size=4096)
        job.make(*(f"{SHM}/mixed/{name}_{n}" for n in range(75) for name in ("ab", "cd")))

        (found,) = job.look() or ()
        job.make(f"{SHM}/psm_more")
        later = job.counts()

    assert (found.key.group, found.total, found.size_bytes) == ("psm_*", 151, 151 * 4096), (
        "with the folder `mixed`, of which nothing can be said"
    )
    assert later == {f"{SHM}/psm_*": 152}


def test_no_folder_at_all_is_not_zero_files(proc: FakeProc) -> None:
    proc.process(PID)

    assert NewFilesReader(str(proc)).read(PID, (), None, UID, 0.0, 1.0) is None


def test_a_listing_that_costs_much_is_rare(proc: FakeProc) -> None:
    seconds = count()
    job = Job(proc, lambda: float(next(seconds)))
    job.make("/dev/shm/psm_a")
    assert job.counts() == {"/dev/shm/psm_a*": 1}, "the first listing, which costs most"
    job.make("/dev/shm/psm_b")
    assert job.counts() == {"/dev/shm/psm_*": 2}
    job.make("/dev/shm/psm_c")

    assert job.counts(PAUSE_S - 1) == {"/dev/shm/psm_*": 2}
    assert job.counts() == {"/dev/shm/psm_*": 3}


def test_a_folder_in_which_nothing_changed_is_not_listed_again(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.make("/dev/shm/psm_a")
    assert job.counts() == {"/dev/shm/psm_a*": 1}

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", None)
        assert job.counts() == {"/dev/shm/psm_a*": 1}


def test_of_many_old_files_few_are_examined_and_of_new_ones_all(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EXAMINED_LIMIT", 3)
    job.make(*(f"/dev/shm/psm_{n}" for n in range(9)))
    assert job.counts() == {"/dev/shm/psm_*": 3}

    job.make(*(f"/dev/shm/psm_x{n}" for n in range(5)))

    assert job.counts() == {"/dev/shm/psm_*": 6}
    assert job.counts() == {"/dev/shm/psm_*": 8}


def test_folders_are_followed_only_so_far(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    job.make(*(f"{CWD}/a/b/c/d/{n}.txt" for n in range(2)))
    job.make(*(f"{CWD}/e{n}/x.txt" for n in range(9)))
    assert f"{CWD}/a/b/c/d/*.txt" not in job.counts()

    monkeypatch.setattr(module, "FOLDERS_LIMIT", 5)

    assert len(job.counts()) <= 5


def test_of_many_subfolders_those_changed_last_are_followed(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SUBFOLDERS_LIMIT", 2)
    for n in range(9):
        job.make(f"/tmp/run{n}/a.txt")
        os.utime(job.root / f"tmp/run{n}", (1000, 1000 + (n * 7) % 9))
    newest = {f"/tmp/run{n}/*.txt" for n in range(9) if (n * 7) % 9 >= 7}

    assert {path.replace("/a", "/") for path in job.counts()} == newest


def test_few_files_with_similar_names_are_not_shown(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SHOWN_LEAST", 3)
    job.make("/dev/shm/psm_a", "/dev/shm/psm_b", *(f"{CWD}/part-{n}.txt" for n in range(3)))

    assert job.counts() == {f"{CWD}/part-*.txt": 3}


def test_names_are_cleaned(job: Job) -> None:
    job.make("/dev/shm/red\x1b[31m-1.npy")

    (found,) = job.look() or ()

    assert "\x1b" not in found.example + found.pattern + found.key.group


def test_a_folder_that_is_a_link_is_not_followed(job: Job, tmp_path: Path) -> None:
    (tmp_path / "part-1.txt").write_text("x")
    (job.root / "linked").symlink_to(tmp_path)

    assert all("linked" not in each.key.folder for each in job.look(tmp="/linked") or ())


def test_numbers_that_several_names_hold_are_reported(proc: FakeProc) -> None:
    job = Job(proc)
    cameras = ((0, 4827), (1, 4830))
    job.make(*(f"{SHM}/cam{n}_{pid}_{count}" for n, pid in cameras for count in range(998, 1004)))

    (found,) = job.look() or ()

    # Each count is in the names of both cameras.
    assert {4827, 4830} <= set(found.numbers)
    assert found.pattern == "cam*"


def test_of_very_many_makers_those_that_made_most_are_kept(job: Job) -> None:
    job.make("/dev/shm/log_1")
    link = FdLink(1, "file", "/dev/shm/log_1", None, True)

    def note() -> None:
        for number in range(20 * MAKERS_LIMIT):
            short_lived = with_links([link], ProcessId(1000 + number, 1000 + number))
            job.reader.note([with_links([link]), short_lived])

    taken = peak_bytes(note)
    (found,) = job.look() or ()

    assert found.makers[0] == (MAIN.pid, 20 * MAKERS_LIMIT)
    assert taken < 20 * MAKERS_LIMIT * 20


def test_a_folder_in_which_only_others_make_files_is_listed_less_often(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[float] = []
    really = module.list_folder

    def noted(path: str, *arguments: Any) -> None:
        if path.endswith("/tmp"):
            listed.append(job.at_s)
        really(path, *arguments)

    monkeypatch.setattr(module, "list_folder", noted)
    for number in range(20):
        job.make(f"/tmp/torch_{number}")
        job.look()
    assert listed == [1 * LISTING_S, 2 * LISTING_S, 6 * LISTING_S, 10 * LISTING_S, 14 * LISTING_S,
                      18 * LISTING_S]  # fmt: skip

    listed.clear()
    for number in range(8):
        job.make(f"/tmp/shard-{number}.npy")
        job.look()

    assert listed == [n * LISTING_S for n in range(22, 29)]


def test_a_mount_point_in_a_folder_is_not_touched_unless_it_is_local(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.mount("/ ext4", f"{CWD}/remote nfs4", f"{CWD}/scratch xfs", f"{CWD}/one.npy fuse.sshfs")
    job.make(f"{CWD}/remote/tmp1/a.npy", f"{CWD}/scratch/tmp1/a.npy", f"{CWD}/one.npy")
    touched: list[str] = []
    for name in ("_changed_wall_s", "_examined"):
        asked = getattr(module, name)

        def ask(entry: os.DirEntry[str], *more: float, asked: Any = asked) -> Any:
            touched.append(entry.name)
            return asked(entry, *more)

        monkeypatch.setattr(module, name, ask)

    found = job.look()

    assert found is not None
    assert [each.key.folder for each in found] == [f"{CWD}/scratch/tmp1"]
    assert "remote" not in touched
    assert "one.npy" not in touched
