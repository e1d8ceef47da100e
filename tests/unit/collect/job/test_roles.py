from __future__ import annotations

from typing import Any

import pytest

from mpwatch.collect.job.roles import (
    RoleAssignment,
    RoleFacts,
    WorkerNumbers,
    assign,
    is_helper,
    number_workers,
)
from mpwatch.model.cmdline import is_launcher
from mpwatch.model.ids import ProcessId

# Command lines as they were captured from CPython 3.11 and 3.14 with torch 2.13.
PYTHON = "/usr/bin/python3"
TRAIN = (PYTHON, "train.py", "--lr", "0.1")
TRACKER = (PYTHON, "-c", "from multiprocessing.resource_tracker import main;main(5)")
FORKSERVER = (
    PYTHON, "-B", "-c",
    "from multiprocessing.forkserver import main; main(8, 9, ['__main__'], **{})",
)  # fmt: skip
SPAWN = (
    PYTHON, "-c",
    "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5, pipe_handle=7)",
    "--multiprocessing-fork",
)  # fmt: skip
COMPILE = (
    PYTHON, "/usr/lib/python3/dist-packages/torch/_inductor/compile_worker/__main__.py",
    "--pickler=torch._inductor.compile_worker.subproc_pool.SubprocPickler", "--kind=fork",
    "--workers=2", "--parent=10",
)  # fmt: skip
TORCHRUN = (PYTHON, "/usr/bin/torchrun", "--nproc-per-node", "2", "train.py")


def job(
    *rows: tuple[int, int | None, str, tuple[str, ...]], **environments: str
) -> list[RoleFacts]:
    found = []
    for pid, parent, name, cmdline in rows:
        rank = environments.get(f"rank_of_{pid}")
        found.append(
            RoleFacts(
                ProcessId(pid, pid),
                ProcessId(parent, parent) if parent is not None else None,
                name,
                cmdline,
                is_python="python" in cmdline[0],
                environment={"RANK": rank} if rank is not None else {},
            )
        )
    return found


def roles(*rows: tuple[int, int | None, str, tuple[str, ...]], **environments: str) -> list[str]:
    return [part.role for part in assign(job(*rows, **environments)).values()]


def test_a_job_has_one_main_and_a_daemon_whose_parent_was_never_seen_is_none() -> None:
    daemon = (PYTHON, "guardian.py")

    assert roles((10, None, "python", TRAIN), (12, 11, "python", daemon)) == ["main", "other"]
    assert roles(
        (10, None, "python", TORCHRUN), (12, 11, "python", TRAIN), rank_of_12="1"
    ) == ["launcher", "rank"]  # fmt: skip


def test_fork_workers_are_recognised_by_the_name_of_their_thread() -> None:
    parts = assign(
        job(
            (10, None, "python", TRAIN),
            (11, 10, "pt_data_worker", TRAIN),
            (12, 10, "python", TRAIN),
        )
    )

    assert list(parts.values()) == [
        RoleAssignment("main"),
        RoleAssignment("loader-worker", "fork"),
        RoleAssignment("spawned", "fork"),
    ]


def test_spawn_children_are_workers_only_if_they_are_called_so() -> None:
    parts = assign(
        job(
            (10, None, "python", TRAIN),
            (11, 10, "python", TRACKER),
            (12, 10, "pt_data_worker", SPAWN),
            (13, 10, "python", SPAWN),
        )
    )

    assert list(parts.values()) == [
        RoleAssignment("main"),
        RoleAssignment("resource-tracker"),
        RoleAssignment("loader-worker", "spawn"),
        RoleAssignment("spawned", "spawn"),
    ]


@pytest.mark.parametrize(("is_fork", "method"), [(True, "fork"), (False, "spawn")])
def test_a_fork_of_a_spawned_process_has_executed_nothing(is_fork: bool, method: str) -> None:
    *above, worker = job(
        (10, None, "python", TRAIN), (12, 10, "python", SPAWN), (13, 12, "pt_data_worker", SPAWN)
    )
    worker = worker._replace(is_fork=is_fork)

    parts = assign([*above, worker])

    assert parts[worker.process] == RoleAssignment("loader-worker", method)


def test_a_fork_of_what_a_forkserver_started_was_not_started_by_the_server() -> None:
    parts = assign(
        job(
            (10, None, "python", TRAIN),
            (11, 10, "python", FORKSERVER),
            (12, 11, "python", FORKSERVER),
            (13, 12, "pt_data_worker", FORKSERVER),
        )
    )

    assert list(parts.values())[2:] == [
        RoleAssignment("spawned", "forkserver"),
        RoleAssignment("loader-worker", "fork"),
    ]


def test_forkserver_children_keep_the_servers_command_line() -> None:
    parts = assign(
        job(
            (10, None, "python", TRAIN),
            (11, 10, "python", FORKSERVER),
            (12, 11, "pt_data_worker", FORKSERVER),
            (13, 11, "python", FORKSERVER),
        )
    )

    assert list(parts.values()) == [
        RoleAssignment("main"),
        RoleAssignment("forkserver"),
        RoleAssignment("loader-worker", "forkserver"),
        RoleAssignment("spawned", "forkserver"),
    ]


def test_ranks_of_torchrun_and_their_workers_carry_their_rank() -> None:
    script = (PYTHON, "-u", "train.py")
    parts = assign(
        job(
            (10, None, "pt_elastic", TORCHRUN),
            (11, 10, "python", script),
            (12, 10, "python", script),
            (13, 12, "pt_data_worker", script),
            rank_of_11="0",
            rank_of_12="1",
            rank_of_13="1",
        )
    )

    assert [(part.role, part.rank) for part in parts.values()] == [
        ("launcher", None),
        ("rank", 0),
        ("rank", 1),
        ("loader-worker", 1),
    ]


def test_a_training_started_by_a_scheduler_with_a_rank_is_still_main() -> None:
    parts = assign(job((10, None, "python", TRAIN), rank_of_10="3"))

    assert parts[ProcessId(10, 10)] == RoleAssignment("main", rank=3)


def test_below_a_shell_the_first_python_is_main_and_below_that_a_tool_is_other() -> None:
    assert roles(
        (9, None, "bash", ("bash", "run.sh")),
        (10, 9, "python", TRAIN),
        (11, 10, "python", (PYTHON, "-m", "http.server")),
        (12, 10, "ffmpeg", ("ffmpeg", "-i", "x")),
    ) == ["other", "main", "other", "other"]


def test_compile_workers_and_their_forks_are_left_apart() -> None:
    assert roles(
        (10, None, "python", TRAIN),
        (11, 10, "python", COMPILE),
        (12, 11, "python", COMPILE),
    ) == ["main", "compile-worker", "compile-worker"]


def test_the_shm_manager_is_known_by_its_program() -> None:
    manager = ("/usr/lib/python3/dist-packages/torch/bin/torch_shm_manager",)

    assert roles((10, None, "python", TRAIN), (11, 10, "torch_shm_manag", manager)) == [
        "main",
        "shm-manager",
    ]
    assert is_helper("torch_shm_manag", manager)


def test_a_deep_tree_of_processes_that_start_processes_keeps_its_parts() -> None:
    assert roles(
        (10, None, "python", TRAIN),
        (11, 10, "python", SPAWN),
        (12, 11, "python", SPAWN),
        (13, 12, "pt_data_worker", SPAWN),
        (14, 13, "cat", ("cat",)),
    ) == ["main", "spawned", "spawned", "loader-worker", "other"]


def test_an_orphan_from_a_forkserver_is_recognised_by_its_threads_name() -> None:
    parts = assign(job((12, None, "pt_data_worker", FORKSERVER)))

    assert parts[ProcessId(12, 12)] == RoleAssignment("loader-worker", "forkserver")


@pytest.mark.parametrize(
    ("cmdline", "expected"),
    [
        (TORCHRUN, True),
        ((PYTHON, "-m", "torch.distributed.run", "x.py"), True),
        ((PYTHON, "-u", "-m", "torch.distributed.launch", "x.py"), True),
        (("/usr/bin/accelerate", "launch", "x.py"), True),
        ((PYTHON, "train.py", "torchrun"), False),
        ((PYTHON, "-m", "pytest", "torchrun"), False),
        ((), False),
    ],
)
def test_launchers_are_known_by_script_or_module(cmdline: tuple[str, ...], expected: bool) -> None:
    assert is_launcher(cmdline) == expected


def test_workers_are_numbered_by_start_time_even_if_pids_wrapped() -> None:
    starts = [ProcessId(5, 300), ProcessId(32000, 100), ProcessId(4, 200)]

    assert number_workers(starts) == {starts[1]: 0, starts[2]: 1, starts[0]: 2}


def test_a_second_loader_counts_from_zero_again() -> None:
    first = [ProcessId(pid, 1000 + pid) for pid in range(4)]
    second = [ProcessId(pid, 9000 + pid) for pid in range(10, 12)]

    numbers = number_workers(first + second)

    assert [numbers[p] for p in second] == [0, 1]


def test_slow_spawning_does_not_split_a_loader_in_two() -> None:
    starts = [ProcessId(pid, 1000 + 180 * pid) for pid in range(5)]

    assert list(number_workers(starts).values()) == [0, 1, 2, 3, 4]


def numbered(*starts: tuple[int, int]) -> list[tuple[ProcessId, ProcessId]]:
    return [(ProcessId(pid, start), ProcessId(1, 1)) for pid, start in starts]


def test_the_workers_of_the_next_epoch_count_from_zero_however_soon_it_begins() -> None:
    numbers = WorkerNumbers()
    first = numbered((10, 100), (11, 101))
    second = numbered((12, 110), (13, 111))

    numbers.update(first, {worker for worker, _ in first})
    found = numbers.update(second, {worker for worker, _ in second})

    assert list(found.values()) == [0, 1]


def test_workers_keep_their_numbers_when_one_exits_and_others_start() -> None:
    numbers = WorkerNumbers()
    first = numbered((10, 100), (11, 101), (12, 102))
    numbers.update(first, {worker for worker, _ in first})

    left = [*first[1:], *numbered((13, 103))]
    found = numbers.update(left, {worker for worker, _ in left})

    assert list(found.values()) == [1, 2, 3]
    assert numbers.update(left, {worker for worker, _ in left}) == found


def test_workers_are_numbered_from_zero_in_each_of_a_thousand_epochs() -> None:
    numbers = WorkerNumbers()
    for epoch in range(1000):
        workers = numbered((2 * epoch, 10 * epoch), (2 * epoch + 1, 10 * epoch + 1))
        assert list(numbers.update(workers, {w for w, _ in workers}).values()) == [0, 1]
    assert numbers.update([], set()) == {}


def test_options_of_the_interpreter_do_not_hide_what_a_helper_is() -> None:
    developer = (PYTHON, "-X", "dev", "-W", "always::DeprecationWarning", *TRACKER[1:])
    launcher = (PYTHON, "-X", "dev", "-um", "torch.distributed.run", "train.py")

    assert roles((10, None, "python", TRAIN), (11, 10, "python", developer)) == [
        "main",
        "resource-tracker",
    ]
    assert roles((10, None, "python", launcher)) == ["launcher"]


@pytest.mark.parametrize(
    ("name", "is_fork", "parent", "part"),
    [
        ("pt_data_worker", True, TRAIN, RoleAssignment("loader-worker", "fork")),
        ("pt_data_worker", False, TRAIN, RoleAssignment("loader-worker", "spawn")),
        ("python", True, TRAIN, RoleAssignment("spawned", "fork")),
        ("python", True, FORKSERVER, RoleAssignment("spawned", "forkserver")),
        ("python3.11", False, TRAIN, RoleAssignment("other")),
        ("nvidia-smi", False, TRAIN, RoleAssignment("other")),
        ("bash", True, ("bash",), RoleAssignment("other")),
    ],
)
def test_a_process_first_seen_as_zombie_has_its_role_from_name_and_start(
    name: str, is_fork: bool, parent: tuple[str, ...], part: RoleAssignment
) -> None:
    main, above = job((10, None, "python", TRAIN), (11, 10, "python", parent))
    dead = RoleFacts(
        ProcessId(12, 12), above.process, name, cmdline=(), is_python=False, is_fork=is_fork
    )

    assert assign([main, above, dead])[dead.process] == part


def program(
    pid: int, parent: int | None, *cmdline: str, is_python: bool = True, **environment: str
) -> RoleFacts:
    above = ProcessId(parent, parent) if parent is not None else None
    return RoleFacts(ProcessId(pid, pid), above, "x", cmdline, is_python, environment)


def test_what_any_launcher_starts_with_a_number_of_its_own_is_a_rank() -> None:
    facts = [
        program(1, None, PYTHON, "-m", "deepspeed.launcher.runner", "train.py"),
        program(2, 1, PYTHON, "-m", "deepspeed.launcher.launch", "train.py"),
        program(3, 2, *TRAIN, RANK="0", LOCAL_RANK="0"),
        program(4, 2, *TRAIN, RANK="1", LOCAL_RANK="1"),
        program(5, 4, PYTHON, "tool.py", RANK="1", LOCAL_RANK="1"),
    ]

    parts = assign(facts)

    assert [part.role for part in parts.values()] == ["main", "other", "rank", "rank", "other"]
    assert [part.rank for part in parts.values()] == [None, None, 0, 1, 1]


@pytest.mark.parametrize(
    ("environment", "others", "numbers"),
    [
        ({}, (1, 2), [0, 1, 2]),
        ({"NODE_RANK": "0"}, (1, 2), [0, 1, 2]),
        ({"NODE_RANK": "0"}, (1, 3), [0, 1, 3]),
        # On a later node LOCAL_RANK is no number of a rank.
        ({"NODE_RANK": "1", "WORLD_SIZE": "6"}, (1, 2), [3, 4, 5]),
        # One of them is missing, or not all nodes have as many, or the job has fewer.
        ({"NODE_RANK": "1", "WORLD_SIZE": "8"}, (1, 3), [None, None, None]),
        ({"NODE_RANK": "1", "WORLD_SIZE": "7"}, (1, 2), [None, None, None]),
        ({"NODE_RANK": "2", "WORLD_SIZE": "6"}, (1, 2), [None, None, None]),
        ({"NODE_RANK": "1"}, (1, 2), [None, None, None]),
        ({"NODE_RANK": "one", "WORLD_SIZE": "6"}, (1, 2), [None, None, None]),
    ],
)
def test_a_program_that_starts_the_ranks_from_1_on_is_the_first_of_its_node(
    environment: dict[str, str], others: tuple[int, int], numbers: list[int | None]
) -> None:
    facts = [
        program(1, None, *TRAIN),
        *(
            program(1 + local, 1, *TRAIN, is_python=True, LOCAL_RANK=str(local), **environment)
            for local in others
        ),
    ]

    parts = assign(facts)

    assert [part.role for part in parts.values()] == ["main", "rank", "rank"]
    assert [part.rank for part in parts.values()] == numbers


def test_the_first_rank_keeps_its_number_once_the_others_have_ended() -> None:
    first, other = program(1, None, *TRAIN), program(2, 1, *TRAIN, LOCAL_RANK="1")
    zero = program(3, 1, *TRAIN, LOCAL_RANK="0")
    numbers = {first.process: 0}

    assert assign([first])[first.process].rank is None
    assert assign([first], numbers=numbers)[first.process].rank == 0
    # It starts that one as well, so that it is none of them.
    assert assign([first, zero, other], numbers=numbers)[first.process].rank is None


def test_a_launcher_that_starts_ranks_is_none_of_them() -> None:
    facts = [
        program(1, None, PYTHON, "-m", "torch.distributed.run", "train.py"),
        program(2, 1, *TRAIN, LOCAL_RANK="1"),
    ]

    assert [part.rank for part in assign(facts).values()] == [None, 1]


def test_a_program_that_starts_all_ranks_is_none_of_them() -> None:
    facts = [
        program(1, None, *TRAIN),
        program(2, 1, *TRAIN, LOCAL_RANK="0"),
        program(3, 1, *TRAIN, LOCAL_RANK="1"),
    ]

    assert [part.rank for part in assign(facts).values()] == [None, 0, 1]


def test_ranks_that_a_shell_starts_one_by_one_stay_main() -> None:
    facts = [
        program(1, None, "/bin/sh", "run.sh", is_python=False),
        program(2, 1, *TRAIN, RANK="0"),
        program(3, 1, *TRAIN, RANK="1"),
    ]

    assert [part.role for part in assign(facts).values()] == ["other", "main", "main"]


def test_there_is_one_main_however_its_tools_are_started() -> None:
    facts = [
        program(1, None, *TRAIN),
        program(2, 1, "/venv/ray/raylet", is_python=False),
        program(3, 2, "ray::IDLE"),
        program(4, 1, "/bin/sh", "-c", "python tool.py", is_python=False),
        program(5, 4, PYTHON, "tool.py"),
    ]

    found = [part.role for part in assign(facts).values()]
    assert found == ["main", "other", "ray-worker", "other", "other"]


@pytest.mark.parametrize(
    "package", ["multiprocessing", "multiprocess", "joblib.externals.loky.backend"]
)
def test_helpers_of_copies_of_multiprocessing_are_known(package: str) -> None:
    code = f"from {package}.resource_tracker import main; main(4, False)"
    facts = [program(1, None, *TRAIN), program(2, 1, PYTHON, "-c", code)]

    assert assign(facts)[facts[1].process].role == "resource-tracker"
    assert is_helper("python", facts[1].cmdline)


def test_rays_workers_are_distinguished_from_its_services() -> None:
    # Titles as Ray 2.60 sets them.
    worker = "/usr/lib/ray/_private/workers/default_worker.py"
    rows = job(
        (10, None, "raylet", ("/usr/lib/ray/core/src/ray/raylet/raylet", "--node_id=1")),
        (11, 10, "ray::IDLE", ("ray::IDLE",)),
        (12, 10, "ray::Trainer.st", ("ray::Trainer.step",)),
        (13, 10, "python", (PYTHON, worker, "--node-ip-address=10.0.0.7")),
        (14, 10, "ray::DashboardA", ("ray::DashboardAgent",)),
        (15, 10, "ray::IDLE_Spill", ("ray::IDLE_SpillWorker",)),
    )
    rows = [row._replace(is_python=row.name != "raylet") for row in rows]

    forked = RoleFacts(
        ProcessId(16, 16), ProcessId(12, 12), "ray::Trainer.in", ("ray::Trainer.init",), True
    )
    rows.append(forked._replace(is_fork=True))

    parts = [part.role for part in assign(rows).values()]

    assert parts == ["other", *["ray-worker"] * 3, "other", "other", "spawned"]


WRAPPER = ("/bin/bash", "./wrap.sh", "python", "train.py")
RUNS = (PYTHON, "run_one.py", "train.py")


def chain(*cmdlines: tuple[str, ...], top: tuple[str, ...] = TORCHRUN) -> list[RoleFacts]:
    """A launcher, and below it programs of which each has started the next, all with RANK 3."""
    rows: list[tuple[int, int | None, str, tuple[str, ...]]] = [(10, None, "python", top)]
    rows += [(11 + n, 10 + n, "python", each) for n, each in enumerate(cmdlines)]
    return job(*rows, **{f"rank_of_{11 + n}": "3" for n in range(len(cmdlines))})


def with_signs(facts: list[RoleFacts], *pids: int, **signs: Any) -> list[RoleFacts]:
    return [each._replace(**signs) if each.process.pid in pids else each for each in facts]


def ranks(facts: list[RoleFacts], wrappers: frozenset[ProcessId] = frozenset()) -> list[int]:
    """The pids of the ranks."""
    return [
        process.pid
        for process, part in assign(facts, wrappers).items()
        if part.role == "rank" or (part.role == "main" and part.rank is not None)
    ]


def test_below_a_shell_that_has_its_number_a_program_is_the_rank() -> None:
    facts = chain(WRAPPER, ("sh", "-c", "python train.py"), TRAIN)

    assert ranks(facts) == [13]
    assert assign(facts)[ProcessId(13, 13)] == RoleAssignment("rank", rank=3)
    assert assign(facts)[ProcessId(11, 11)] == RoleAssignment("other")
    assert ranks(chain(WRAPPER, TRAIN, top=("slurmstepd", "[7.0]"))) == [12]


def test_of_programs_that_run_each_other_the_one_with_torch_is_the_rank() -> None:
    facts = chain(RUNS, WRAPPER, RUNS, TRAIN)
    loaded = with_signs(facts, 14, has_torch=True)

    assert ranks(loaded) == [14]
    parts = assign(loaded)
    assert [parts[ProcessId(pid, pid)].rank for pid in (11, 13)] == [None, None]
    assert [parts[ProcessId(pid, pid)].role for pid in (11, 13)] == ["launcher"] * 2


def test_of_programs_with_torch_the_one_with_a_process_group_is_the_rank() -> None:
    both = with_signs(chain(RUNS, TRAIN), 11, 12, has_torch=True)

    assert ranks(both) == [11]
    assert ranks(with_signs(both, 12, has_group=True)) == [12]


def test_what_a_rank_runs_is_no_rank() -> None:
    facts = with_signs(chain(TRAIN, (PYTHON, "tool.py")), 11, 12, has_torch=True)

    assert ranks(with_signs(facts, 11, has_group=True)) == [11]


def test_what_has_run_a_rank_is_none_once_that_has_ended() -> None:
    facts = with_signs(chain(RUNS, TRAIN), 12, has_torch=True)
    wrappers = frozenset(p for p, part in assign(facts).items() if part.role == "launcher")

    assert ranks(facts[:2], wrappers) == []
    # Also where its process group has ended and both have torch.
    assert ranks(with_signs(facts, 11, has_torch=True), wrappers) == [12]


def test_a_program_that_is_the_root_may_run_a_rank() -> None:
    rows = [(11, None, "python", RUNS), (12, 11, "python", TRAIN)]
    facts = job(*rows, rank_of_11="0", rank_of_12="0")

    assert ranks(with_signs(facts, 12, has_torch=True)) == [12]


def test_what_was_taken_for_a_wrapper_is_the_rank_once_it_has_joined_a_group() -> None:
    facts = chain(TRAIN, (PYTHON, "evaluate.py"))
    # The mappings of the second one were read first.
    wrappers = frozenset(
        p
        for p, part in assign(with_signs(facts, 12, has_torch=True)).items()
        if part.role == "launcher"
    )

    assert ProcessId(11, 11) in wrappers
    joined = with_signs(facts, 11, has_torch=True, has_group=True)
    assert ranks(joined, wrappers) == [11]
