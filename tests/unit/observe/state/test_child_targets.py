"""Targets of children: from the hook's report, and from the outer end of a stack."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame
from mpwatch.observe.state.child_targets import TargetTable, target_by_description, target_of_stack
from mpwatch.observe.state.process_table import ProcessRecord
from tests.builders.samples import MAIN, sample

LIB = "/usr/lib/python3.12/multiprocessing/process.py"
SITE = "/venv/lib/python3.12/site-packages/"
UTIL = "/py/multiprocessing/util.py"
BOOT = [("run", LIB), ("_bootstrap", LIB)]


@pytest.mark.parametrize(
    ("target", "name", "label"),
    [
        ("__main__.actor", "Process-1", "actor 1"),
        ("__mp_main__.make.<locals>.actor", "SpawnProcess-1:2", "actor 1"),
        ("stable_baselines3.vec.subproc_vec_env._worker", "Process-3", "subproc_vec_env._worker 1"),
        ("gymnasium.vector._async_worker", "Worker<AsyncVectorEnv>-0", "Worker<AsyncVectorEnv>-0"),
        ("__main__.Collector", "Collector-2", "Collector 1"),
        ("multiprocessing.pool.worker", "ForkPoolWorker-1", "pool worker 1"),
        ("multiprocessing.managers.BaseManager._run_server", "SyncManager-1", "manager 1"),
        ("torch.multiprocessing.spawn._wrap", "SpawnProcess-1", "rank 1"),
        ("train.actor", "\x1b[31mred", "red 1"),
        ("collectors._runner._main_async", "_ProcessNoWarnSpawn-2", "_runner._main_async 1"),
        ("train.actor", "Processor", "Processor"),
        ("actor", "", "actor 1"),
    ],
)
def test_the_label_follows_from_the_hooks_report(target: str, name: str, label: str) -> None:
    found = target_by_description({"target": target, "name": name})

    assert found is not None
    assert found.label(1).removesuffix(" 1") == label.removesuffix(" 1")
    assert "\x1b" not in found.name


@pytest.mark.parametrize(
    "description",
    [None, {}, {"target": 3}, {"target": ""}, [], {"target": "x.worker._worker_loop"}],
)
def test_a_report_without_a_target_gives_no_label(description: object) -> None:
    assert target_by_description(description) is None


@pytest.mark.parametrize(
    ("frames", "label"),
    [
        ([("sleep", "train.py"), ("actor", "/job/train.py"), *BOOT], "actor 1"),
        ([("act", "/job/actors.py"), *BOOT], "actors.act 1"),
        ([("_worker", SITE + "sb3/subproc_vec_env.py"), *BOOT], "subproc_vec_env._worker 1"),
        ([("run", "/job/train.py"), ("_bootstrap", LIB)], "train.run 1"),
        ([("work", "a.py"), ("_wrap", SITE + "torch/multiprocessing/spawn.py"), *BOOT], "rank 1"),
        ([("act", "x.py"), BOOT[0], ("run", "/lib/quiet_process.py"), BOOT[1]], "x.act 1"),
        # A forked child keeps the frames of its parent below its own.
        ([("act", "x.py"), *BOOT, ("start", LIB), ("main", "train.py")], "x.act 1"),
        ([("start", LIB), ("act", "x.py"), *BOOT], "x.act 1"),
        ([("start", "/x/mpwatch/hook/points/exits.py"), *BOOT], None),
        ([("wait", "/py/threading.py"), ("_exit_function", UTIL), BOOT[-1]], None),
        (BOOT, None),
        ([("main", "train.py")], None),
        ([("_worker_loop", SITE + "torch/utils/data/_utils/worker.py"), *BOOT], None),
        ([], None),
    ],
)
def test_the_label_follows_from_the_stack(frames: list[tuple[str, str]], label: str | None) -> None:
    found = target_of_stack([Frame(name, file, 1) for name, file in frames], "train.py")

    assert (found and found.label(1)) == label


@pytest.mark.parametrize(
    ("file", "class_name", "label"),
    [
        ("/job/train.py", "RolloutWorker", "RolloutWorker 1"),
        ("/job/actors.py", "RolloutWorker", "actors.RolloutWorker 1"),
        ("/job/train.py", "", "train.run 1"),
    ],
)
def test_the_run_of_a_subclass_is_called_by_its_class(
    file: str, class_name: str, label: str
) -> None:
    frames = [Frame(name, where, 1) for name, where in (("run", file), BOOT[-1])]

    found = target_of_stack(frames, "train.py", class_name)

    assert found is not None
    assert found.label(1) == label


def test_the_class_is_no_name_of_a_function_that_is_the_target() -> None:
    frames = [Frame(name, where, 1) for name, where in (("act", "/job/train.py"), *BOOT)]

    found = target_of_stack(frames, "train.py", "RolloutWorker")

    assert found is not None
    assert found.name == "act"


CHILDREN = [ProcessId(number, number) for number in (501, 502, 503, 504)]


def labels_with(
    table: TargetTable, targets: Mapping[ProcessId, str], *, with_parent: bool = True
) -> list[str]:
    """The labels of four children, of which these are known to run a target."""
    records = {MAIN: ProcessRecord(sample(MAIN, 11.0))} if with_parent else {}
    for each in CHILDREN:
        records[each] = ProcessRecord(sample(each, 11.0, role="spawned"), MAIN, MAIN)
    descriptions = {each: {"target": target} for each, target in targets.items()}
    table.update(records, descriptions.get)
    tasks = [table.get(each) for each in CHILDREN]
    return ["" if task is None else task[0].label(task[1]) for task in tasks]


def test_a_rank_has_no_number_while_an_older_child_may_be_a_rank_too() -> None:
    first, second, third, fourth = CHILDREN
    spawn = "torch.multiprocessing.spawn._wrap"
    table = TargetTable()
    targets = {first: spawn, second: spawn, fourth: spawn}
    assert labels_with(table, targets) == ["rank 0", "rank 1", "", "rank"]

    targets[third] = spawn
    assert labels_with(table, targets) == ["rank 0", "rank 1", "rank 2", "rank 3"]


def test_ranks_are_numbered_once_their_older_siblings_are_known_to_run_something_else() -> None:
    first, second, third, _ = CHILDREN
    spawn = "torch.multiprocessing.spawn._wrap"
    table = TargetTable()
    targets = {second: spawn, third: spawn}
    assert labels_with(table, targets) == ["", "rank", "rank", ""]

    targets[first] = "__main__.write_log"
    assert labels_with(table, targets) == ["write_log", "rank 0", "rank 1", ""]


def test_ranks_whose_parent_is_not_known_have_no_number() -> None:
    targets = dict.fromkeys(CHILDREN, "torch.multiprocessing.spawn._wrap")

    assert labels_with(TargetTable(), targets, with_parent=False) == ["rank"] * 4
