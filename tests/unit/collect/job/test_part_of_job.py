"""A process that another one of its job has started is known as a part of that job."""

from __future__ import annotations

import pytest

from mpwatch.collect.job.jobs import find_jobs, part_of_job
from mpwatch.collect.job.process_tree import ProcessTree
from mpwatch.collect.job.reader import ReadRequest, TreeCollector
from mpwatch.describe.processes import part_sentence
from mpwatch.model.ids import ProcessId
from tests.unit.collect.conftest import FakeProc

FORKED = 0x40
TORCH_LINE = "7f0000030000-7f0000031000 r-xp 00000000 08:01 12 /x/torch/lib/libtorch_cpu.so\n"
TORCHRUN = ("/venv/bin/python3", "/venv/bin/torchrun", "--nproc_per_node", "4", "/home/u/train.py")
SPAWNED = ("python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()")


def sentence_of(proc: FakeProc, number: int) -> str:
    part = part_of_job(ProcessId(number, number), proc=str(proc))
    return "" if part is None else part_sentence(number, part)


def test_a_rank_is_part_of_the_job_of_its_launcher(proc: FakeProc) -> None:
    proc.process(5, name="bash", cmdline=("bash",), exe="/usr/bin/bash")
    proc.process(10, parent=5, cmdline=TORCHRUN)
    proc.process(12, parent=10, environ="RANK=2\0LOCAL_RANK=2\0")

    assert sentence_of(proc, 12) == "12 is rank 2 of the job of 10 (train.py): mpwatch diagnose 10"
    assert sentence_of(proc, 10) == ""


def test_a_rank_below_a_wrapper_is_part_of_the_job(proc: FakeProc) -> None:
    proc.process(10, cmdline=TORCHRUN)
    rank = "RANK=1\0LOCAL_RANK=1\0"
    proc.process(11, 10, "bash", ("bash", "wrap.sh"), exe="/usr/bin/bash", environ=rank)
    proc.process(12, parent=11, environ=rank)

    assert "of the job of 10" in sentence_of(proc, 12)


@pytest.mark.parametrize(
    ("name", "cmdline", "flags", "words"),
    [
        ("python", ("python", "train.py"), FORKED, "a spawned process of the job of 10 (train.py)"),
        ("python", SPAWNED, 0, "a spawned process of the job of 10 (train.py)"),
        ("pt_data_worker", ("python", "train.py"), FORKED, "a loader-worker of the job of 10"),
    ],
)
def test_a_process_of_multiprocessing_is_part_of_the_job_of_its_parent(
    proc: FakeProc, name: str, cmdline: tuple[str, ...], flags: int, words: str
) -> None:
    proc.process(10)
    proc.process(11, 10, name, cmdline, flags=flags)

    assert words in sentence_of(proc, 11)


@pytest.mark.parametrize(
    ("name", "cmdline", "exe"),
    [
        ("bash", ("bash",), "/usr/bin/bash"),
        ("tmux: server", ("tmux",), "/usr/bin/tmux"),
        ("slurmstepd", ("slurmstepd: [1.0]",), "/usr/sbin/slurmstepd"),
        ("python", ("python", "-m", "ipykernel_launcher"), "/usr/bin/python3.11"),
        ("python", ("python", "/usr/bin/supervisord"), "/usr/bin/python3.11"),
    ],
)
def test_what_merely_starts_a_program_is_no_root_of_its_job(
    proc: FakeProc, name: str, cmdline: tuple[str, ...], exe: str
) -> None:
    # As under Slurm: all that is started has the variables of a rank.
    rank = "RANK=1\0LOCAL_RANK=1\0"
    proc.process(5, 1, name, cmdline, exe=exe, environ=rank)
    proc.process(10, parent=5, environ=rank)

    assert sentence_of(proc, 10) == ""


def test_processes_of_the_same_parent_are_no_orphans_of_a_part(proc: FakeProc) -> None:
    proc.process(10)
    proc.process(11, parent=10, flags=FORKED)
    proc.process(12, parent=10, name="pt_data_worker", flags=FORKED)

    tree = TreeCollector(ProcessId(11, 11), proc=str(proc)).collect(ReadRequest.processes_only())

    assert tree is not None
    assert [each.process.pid for each in tree.processes] == [11]
    assert tree.processes[0].role == "spawned"
    assert tree.part_of is not None
    assert tree.part_of.root == ProcessId(10, 10)
    # An orphan of the job's init is still found.
    proc.process(13, parent=1, name="pt_data_worker", flags=FORKED)
    found = ProcessTree(ProcessId(11, 11), str(proc), above=(10,)).update()
    assert [each.stat.pid for each in found] == [11, 13]


def test_a_parent_without_torch_is_the_root_of_what_it_has_forked(proc: FakeProc) -> None:
    proc.process(10, cmdline=("python", "serve.py"))
    proc.process(11, 10, cmdline=("python", "serve.py"), flags=FORKED, maps=TORCH_LINE)

    assert [job.root.process.pid for job in find_jobs(str(proc))] == [10]
