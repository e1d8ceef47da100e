"""Which trees of processes are one job."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mpwatch.collect.job.jobs import find_jobs
from mpwatch.nodes.agent.jobs_of_node import Selection, find_roots

TORCH = "7f00-7f01 r-xp 00000000 08:01 7 /usr/lib/libtorch_cpu.so\n"


def add(
    proc: Path, pid: int, parent: int, *cmdline: str, environ: str = "", maps: str = ""
) -> None:
    folder = proc / str(pid)
    folder.mkdir()
    os.symlink("/usr/bin/python3", folder / "exe")
    zeros = " 0" * 15
    (folder / "stat").write_text(f"{pid} (python) S {parent} 1 1{zeros} {pid}" + " 0" * 30)
    (folder / "status").write_text(f"Uid:\t{os.geteuid()}\n")
    (folder / "cmdline").write_text("\0".join(cmdline))
    (folder / "environ").write_text(environ)
    (folder / "maps").write_text(maps)


@pytest.mark.parametrize(
    ("init", "roots"), [(("torchrun", "train.py"), [1]), (("/sbin/init",), [20, 30])]
)
def test_a_launcher_that_is_process_1_is_the_root_of_its_ranks(
    tmp_path: Path, init: tuple[str, ...], roots: list[int]
) -> None:
    add(tmp_path, 1, 0, *init)
    add(tmp_path, 20, 1, "python", "train.py", maps=TORCH)
    add(tmp_path, 30, 1, "python", "train.py", maps=TORCH)

    assert [job.root.process.pid for job in find_jobs(str(tmp_path))] == roots


def test_a_rank_that_is_process_1_is_the_root_of_its_workers(tmp_path: Path) -> None:
    environ = "RANK=0\0WORLD_SIZE=2"
    add(tmp_path, 1, 0, "python", "train.py", environ=environ)
    add(tmp_path, 20, 1, "python", "train.py", environ=environ)

    assert [each.pid for each in find_roots(Selection(), str(tmp_path))] == [1]
