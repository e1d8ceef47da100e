from __future__ import annotations

import os

import pytest

from mpwatch.collect.job.process_tree import NEW_PIDS_LIMIT, SCAN_INTERVAL_S, ProcessTree
from mpwatch.model.ids import ProcessId
from tests.builders.clock import Clock
from tests.unit.collect.conftest import FakeProc

HELPER = ("python", "-c", "from multiprocessing.resource_tracker import main;main(5)")


def pids(tree: ProcessTree) -> list[int]:
    return [each.stat.pid for each in tree.update()]


def test_parents_come_before_children_and_siblings_by_start_time(proc: FakeProc) -> None:
    proc.process(10)
    proc.process(12, parent=10, start=12)
    proc.process(11, parent=10, start=20)
    proc.process(13, parent=12)
    proc.process(99)

    found = ProcessTree(ProcessId(10, 10), str(proc)).update()

    assert [each.stat.pid for each in found] == [10, 12, 13, 11]
    assert [each.parent for each in found] == [None, (10, 10), (12, 12), (10, 10)]


def test_a_child_started_by_another_thread_is_found(proc: FakeProc) -> None:
    proc.process(10)
    proc.process(11, parent=10)
    proc.write("10/task/10/children", "")
    proc.thread(10, 15, children="11 ")

    assert pids(ProcessTree(ProcessId(10, 10), str(proc))) == [10, 11]


def test_an_orphan_stays_in_the_tree_with_its_old_parent(proc: FakeProc) -> None:
    proc.process(10)
    proc.process(11, parent=10)
    proc.process(12, parent=11)
    tree = ProcessTree(ProcessId(10, 10), str(proc))
    tree.update()

    proc.end(11)
    proc.write("12/stat", proc.stat(12, 1, start=12))
    found = tree.update()

    assert [(each.stat.pid, each.parent) for each in found] == [(10, None), (12, (11, 11))]
    assert found[1].stat.parent_pid == 1


def test_descendants_outlive_their_root(proc: FakeProc) -> None:
    proc.process(10)
    proc.process(11, parent=10)
    tree = ProcessTree(ProcessId(10, 10), str(proc))
    tree.update()

    proc.end(10)
    assert pids(tree) == [11]
    proc.end(11)
    assert pids(tree) == []


def test_a_reused_number_is_another_process(proc: FakeProc) -> None:
    proc.process(10)
    proc.process(11, parent=10)
    tree = ProcessTree(ProcessId(10, 10), str(proc))
    tree.update()

    proc.end(11)
    proc.process(11, parent=1, start=5000)

    assert pids(tree) == [10]


def test_children_are_not_searched_while_the_machine_starts_no_process(proc: FakeProc) -> None:
    proc.process(10)
    tree = ProcessTree(ProcessId(10, 10), str(proc))
    tree.update()
    proc.process(11, parent=10)
    proc.write("loadavg", "0 0 0 1/2 10\n")

    assert pids(tree) == [10]
    proc.write("loadavg", "0 0 0 1/2 11\n")
    assert pids(tree) == [10, 11]


def test_each_new_child_is_reported_once(proc: FakeProc) -> None:
    proc.process(10)
    tree = ProcessTree(ProcessId(10, 10), str(proc))
    tree.update()
    proc.process(11, parent=10)

    assert tree.started() == [(11, 11)]
    assert tree.started() == []
    assert pids(tree) == [10, 11]


def test_a_new_thread_of_a_sibling_is_no_child(proc: FakeProc) -> None:
    proc.process(10)
    tree = ProcessTree(ProcessId(10, 10), str(proc))
    tree.update()
    proc.process(11, parent=10)
    status = (proc.root / "11/status").read_text().replace("Tgid:\t11", "Tgid:\t9")
    proc.write("11/status", status)

    assert tree.started() == []


def test_a_child_of_another_process_with_a_reused_pid_is_not_in_the_job(proc: FakeProc) -> None:
    proc.process(10)
    proc.process(11, parent=10)
    tree = ProcessTree(ProcessId(10, 10), str(proc))
    tree.update()
    proc.end(11)
    proc.process(11, parent=1, start=99)
    proc.process(12, parent=11)

    assert tree.started() == []


@pytest.mark.parametrize("last", [11 + NEW_PIDS_LIMIT, 5], ids=["far ahead", "wrapped around"])
def test_a_child_is_found_after_any_last_pid(proc: FakeProc, last: int) -> None:
    proc.process(10)
    tree = ProcessTree(ProcessId(10, 10), str(proc))
    tree.update()
    proc.process(11, parent=10)
    proc.write("loadavg", f"0 0 0 1/2 {last}\n")

    assert tree.started() == [(11, 11)]


@pytest.mark.parametrize(
    ("child", "grandchild", "last"),
    [(2_000, 3_000, 4_000), (5_000, 12, 14)],
    ids=["far ahead", "wrapped around"],
)
def test_a_machine_that_starts_very_much_hides_no_grandchild(
    proc: FakeProc, child: int, grandchild: int, last: int
) -> None:
    proc.process(1_000)
    tree = ProcessTree(ProcessId(1_000, 1_000), str(proc))
    tree.update()
    proc.process(child, parent=1_000)
    proc.process(grandchild, parent=child)
    for pid in (1_000, child):  # they are found without a search for children
        proc.write(f"{pid}/task/{pid}/children", "")
    proc.write("loadavg", f"0 0 0 1/2 {last}\n")

    assert tree.started() == [(child, child), (grandchild, grandchild)]
    assert pids(tree) == [1_000, child, grandchild]


def test_without_children_files_the_whole_machine_is_searched(proc: FakeProc) -> None:
    (proc.root / "thread-self/children").unlink()
    proc.process(10)
    proc.process(11, parent=10)
    for pid in (10, 11):
        (proc.root / f"{pid}/task/{pid}/children").unlink()

    assert pids(ProcessTree(ProcessId(10, 10), str(proc))) == [10, 11]


def test_a_detached_helper_of_the_same_group_belongs_to_the_job(proc: FakeProc) -> None:
    proc.process(1, parent=0, name="init", cmdline=("init",), group=1)
    proc.process(10)
    proc.process(20, parent=1, cmdline=HELPER)

    found = ProcessTree(ProcessId(10, 10), str(proc)).update()

    assert [(each.stat.pid, each.parent) for each in found] == [(10, None), (20, None)]


def test_a_detached_fork_belongs_to_the_job_but_a_second_job_beside_the_root_does_not(
    proc: FakeProc,
) -> None:
    proc.process(1, parent=0, name="init", cmdline=("init",), group=1)
    proc.process(5, name="bash", cmdline=("bash",))
    proc.process(10, parent=5)
    proc.process(20, parent=1)
    proc.process(21, parent=5)

    assert pids(ProcessTree(ProcessId(10, 10), str(proc))) == [10, 20]


def test_a_detached_shm_manager_belongs_to_the_job_that_started_it(proc: FakeProc) -> None:
    manager = ("torch_shm_manager",)
    proc.process(1, parent=0, name="init", cmdline=("init",), group=1)
    proc.process(10)
    for pid, folder in ((10, "/job"), (20, "/job"), (21, "/elsewhere"), (22, None)):
        if pid > 10:
            proc.process(pid, parent=1, name="torch_shm_manag", cmdline=manager, group=pid)
        if folder is not None:
            (proc.root / f"{pid}/cwd").symlink_to(folder)

    assert pids(ProcessTree(ProcessId(10, 10), str(proc))) == [10, 20]


def test_other_processes_of_the_same_group_do_not_belong_to_the_job(proc: FakeProc) -> None:
    proc.process(1, parent=0, name="init", cmdline=("init",), group=1)
    proc.process(5, name="bash", cmdline=("bash",))
    proc.process(10, parent=5)
    proc.process(20, parent=5, name="tee", cmdline=("tee", "log"))
    proc.process(21, parent=1, cmdline=HELPER, group=700)
    proc.process(9, parent=1, cmdline=HELPER, start=3)

    assert pids(ProcessTree(ProcessId(10, 10), str(proc))) == [10]


def test_detached_processes_are_searched_at_intervals(proc: FakeProc) -> None:
    clock = Clock(0.0)
    proc.process(1, parent=0, name="init", cmdline=("init",), group=1)
    proc.process(10)
    tree = ProcessTree(ProcessId(10, 10), str(proc), clock)
    tree.update()
    proc.process(20, parent=1, cmdline=HELPER)

    clock.now_s = SCAN_INTERVAL_S - 1
    assert pids(tree) == [10]
    clock.now_s = SCAN_INTERVAL_S
    assert pids(tree) == [10, 20]


def test_an_observer_below_the_root_is_no_part_of_the_job(proc: FakeProc) -> None:
    own = os.getpid()
    proc.process(10)
    proc.process(11, parent=10)
    proc.process(12, parent=10)
    proc.process(own, parent=12)
    proc.process(own + 1, parent=own)

    assert pids(ProcessTree(ProcessId(10, 10), str(proc))) == [10, 11]
    assert pids(ProcessTree(ProcessId(own, own), str(proc))) == [own, own + 1]
