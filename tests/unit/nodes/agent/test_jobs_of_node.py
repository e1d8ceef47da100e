"""Which processes of a machine belong to a job, and which of its jobs are observed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from mpwatch.collect.own_threads import OwnThreads
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Snapshot
from mpwatch.nodes.agent import jobs_of_node
from mpwatch.nodes.agent.jobs_of_node import (
    JobsOfNode,
    Selection,
    find_roots,
    gpu_driver,
    torch_version,
)
from mpwatch.observe.sources.live import LiveOptions
from mpwatch.observe.sources.source import Command, Deliver, Follow
from tests.unit.nodes.jobs import rank, snapshot

WAIT = "input()"
MARK = f"of-{os.getpid()}"
"""Other test processes start such ranks at the same time."""


START = """
import os, subprocess, sys
for number in range(3):
    name = "RANK" if number < 2 else "LOCAL_RANK"
    environment = {**os.environ, name: str(number), "WORLD_SIZE": "3", "MPWATCH_T": sys.argv[1]}
    rank = subprocess.Popen(
        [sys.executable, "-c", sys.argv[2]],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    print(rank.pid)
"""


@pytest.fixture
def ranks(request: pytest.FixtureRequest) -> Iterator[list[int]]:
    """Three processes with the environment of ranks, one as of Lightning; none loads torch.

    Their parent has ended: the process of the tests may itself be a torch job with children.
    """
    hold, until = os.pipe()
    started = subprocess.run(
        [sys.executable, "-c", START, MARK, getattr(request, "param", WAIT)],
        stdin=hold,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60,
    )
    os.close(hold)
    yield [int(line) for line in started.stdout.split()]
    os.close(until)  # each reads the end of its input


def test_processes_are_named_by_pid(ranks: list[int]) -> None:
    found = find_roots(Selection(pids=(ranks[1], 2**22 + 1)))

    assert [each.pid for each in found] == [ranks[1]]


def test_ranks_that_have_not_loaded_torch_are_not_children_of_the_searcher(
    ranks: list[int],
) -> None:
    # This process has started them: only what another process has started is found.
    code = (
        "from mpwatch.nodes.agent.jobs_of_node import Selection, find_roots; "
        f"print([p.pid for p in find_roots(Selection(environment={{'MPWATCH_T': {MARK!r}}}))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.strip() == str(ranks)


RUN = "import subprocess, sys; subprocess.call([sys.executable, '-c', 'input()'])"
SEARCH = """
import sys
from types import SimpleNamespace
from mpwatch.collect.process import procfs
from mpwatch.nodes.agent import jobs_of_node

wrapper = int(sys.argv[1])
while True:
    stats = [procfs.read_stat("/proc", pid) for pid in procfs.pids("/proc")]
    below = [each for each in stats if each is not None and each.parent_pid == wrapper]
    if below:
        break
known = SimpleNamespace(process=below[0].process, uid=0)
job = SimpleNamespace(root=known, processes=[known])
if sys.argv[2] == "known":
    jobs_of_node.find_jobs = lambda proc: [job]
selection = jobs_of_node.Selection(environment={"MPWATCH_T": sys.argv[3]})
print(wrapper in [each.pid for each in jobs_of_node.find_roots(selection)])
"""


@pytest.mark.parametrize(("child", "is_found"), [("known", "False"), ("unknown", "True")])
@pytest.mark.parametrize("ranks", [RUN], indirect=True)
def test_what_runs_a_rank_is_the_root_only_until_the_rank_is_a_job(
    ranks: list[int], child: str, is_found: str
) -> None:
    arguments = [sys.executable, "-c", SEARCH, str(ranks[0]), child, MARK]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.strip() == is_found


def test_the_roots_are_divided_into_parts() -> None:
    assert [n for n in range(7) if Selection(part=(1, 3)).is_in_part(n)] == [1, 4]


@pytest.mark.slow
def test_the_version_of_torch_is_that_of_the_process() -> None:
    program = "import torch; print(torch.__version__, flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        version = process.stdout.readline().strip()
        assert version
        assert torch_version(process.pid) == version
    finally:
        process.communicate()


@pytest.mark.timeout(20)
def test_a_pipe_in_the_place_of_the_version_is_not_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "42/root/site/torch"
    folder.mkdir(parents=True)
    (tmp_path / "42/maps").write_text("0-1 r-xp 0 08:01 7 /site/torch/lib/libtorch_cpu.so\n")
    (folder / "version.py").write_text("__version__ = '2.9.1'\n")
    assert torch_version(42, str(tmp_path)) == "2.9.1"
    (folder / "version.py").unlink()
    os.mkfifo(folder / "version.py")
    assert torch_version(42, str(tmp_path)) is None


def test_a_process_without_torch_has_no_version(ranks: list[int]) -> None:
    assert torch_version(ranks[0]) is None


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.57.02  Tue Jul 13 2021\n"
            "GCC version:  gcc version 10.2.1 20210110 (Debian 10.2.1-6)\n",
            "NVIDIA 470.57.02",
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  565.77  Release Build  (x)\n",
            "NVIDIA 565.77",
        ),
        ("GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1)\n", None),
        ("NVRM version: \x1b[31m\n", None),
        (None, None),
    ],
)
def test_the_gpu_driver_is_read_where_one_is_loaded(
    tmp_path: Path, text: str | None, version: str | None
) -> None:
    if text is not None:
        (tmp_path / "driver/nvidia").mkdir(parents=True)
        (tmp_path / "driver/nvidia/version").write_text(text)

    assert gpu_driver(str(tmp_path)) == version


# --- jobs with made-up sources ---

FIRST, SECOND = ProcessId(1000, 50), ProcessId(1001, 50)


class MadeUpSource:
    """A source that delivers what a test says."""

    is_live = True

    def __init__(self) -> None:
        self.deliver: Deliver | None = None
        self.is_stopped = False
        self.asked: list[Command] = []

    def start(self, deliver: Deliver) -> None:
        self.deliver = deliver

    def stop(self) -> None:
        self.is_stopped = True

    def ask(self, command: Command) -> str | None:
        self.asked.append(command)
        return None

    def has_read(self, snapshot: Snapshot) -> None:
        assert self.deliver is not None
        self.deliver(snapshot)


class Machine:
    """The processes of a node, and the sources that observe them."""

    def __init__(self) -> None:
        self.roots: list[ProcessId] = [FIRST]
        self.sources: dict[ProcessId, MadeUpSource] = {}
        self.options: list[LiveOptions] = []
        self.jobs = JobsOfNode(lambda: self.roots, lambda root: root in self.roots, self._new)

    def _new(self, root: ProcessId, options: LiveOptions) -> MadeUpSource:
        self.options.append(options)
        return self.sources.setdefault(root, MadeUpSource())


@pytest.mark.parametrize("values", [True, False])
def test_values_are_read_as_the_configuration_of_the_node_says(values: bool) -> None:
    machine = Machine()
    machine.jobs.values = values
    machine.jobs.refresh()

    assert [each.values for each in machine.options] == [values]


def test_new_jobs_are_observed_and_known_ones_are_not_observed_again() -> None:
    machine = Machine()
    machine.jobs.refresh()
    machine.roots.append(SECOND)
    machine.jobs.refresh()
    first = snapshot([rank(0)])
    machine.sources[FIRST].has_read(first)

    assert list(machine.sources) == [FIRST, SECOND]
    assert machine.jobs.snapshots() == [first]
    assert machine.jobs.is_reading


def test_a_rank_below_what_has_run_it_is_no_job_of_its_own() -> None:
    machine = Machine()
    machine.jobs.refresh()
    read = snapshot([rank(0)])
    machine.sources[FIRST].has_read(read)
    machine.roots = [read.processes[0].process, SECOND]
    machine.jobs.refresh()

    assert list(machine.sources) == [FIRST, SECOND]


def test_a_job_that_has_ended_keeps_its_last_state_and_costs_nothing() -> None:
    machine = Machine()
    machine.jobs.refresh()
    last = replace(snapshot([rank(0)]), mode="ended")
    machine.sources[FIRST].has_read(last)
    machine.roots = []
    machine.jobs.refresh()
    machine.jobs.stop(10.0)

    assert machine.jobs.snapshots() == [last]
    assert not machine.jobs.is_reading


def test_what_is_known_can_be_read_while_a_source_is_stopped_at_a_limit_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The head asks for summaries meanwhile, and a source may take seconds to stop."""
    machine = Machine()
    machine.jobs.refresh()
    last = replace(snapshot([rank(0)]), mode="ended")
    machine.sources[FIRST].has_read(last)
    machine.roots = []
    seen: list[list[Snapshot]] = []
    reader = threading.Thread(target=lambda: seen.append(machine.jobs.snapshots()), daemon=True)

    def stop() -> None:
        reader.start()
        reader.join(10.0)
        assert seen == [[last]]

    machine.sources[FIRST].stop = stop  # type: ignore[method-assign]
    monkeypatch.setattr(OwnThreads, "start", lambda *_: None)
    machine.jobs.refresh()

    assert seen == [[last]]


def test_a_job_that_ended_before_it_was_read_is_forgotten() -> None:
    machine = Machine()
    machine.jobs.refresh()
    machine.roots = []
    machine.jobs.refresh()

    assert machine.jobs.snapshots() == []
    assert not machine.jobs.is_reading


def test_more_jobs_than_can_be_observed_are_reported() -> None:
    machine = Machine()
    machine.roots = [ProcessId(pid, 5) for pid in range(2, 102)]
    machine.jobs.refresh()

    assert len(machine.sources) == jobs_of_node.ROOTS_LIMIT
    assert machine.jobs.problem == "Only 64 of 100 jobs are observed."


def test_processes_that_cannot_be_listed_are_a_problem_not_an_end() -> None:
    def fails() -> list[ProcessId]:
        raise PermissionError(13, "Permission denied")

    jobs = JobsOfNode(fails)
    jobs.refresh()

    assert jobs.problem == "Processes cannot be listed: Permission denied."
    assert jobs.has_searched


@pytest.mark.parametrize(
    ("driver", "facts"),
    [("NVIDIA 535.104.05", {"driver": "NVIDIA 535.104.05"}), (None, {})],
)
def test_the_gpu_driver_is_a_value_to_compare(driver: str | None, facts: dict[str, str]) -> None:
    assert JobsOfNode(list, driver=driver).facts() == facts


def test_a_job_is_opened_by_any_of_its_processes_and_asked_as_long_as_it_runs() -> None:
    machine = Machine()
    machine.jobs.refresh()
    first = snapshot([rank(0), rank(7)])
    machine.sources[FIRST].has_read(first)
    root = machine.jobs.root_of(1007)
    assert root == FIRST
    found = machine.jobs.newest(root)
    refused = machine.jobs.ask(root, Follow(FIRST))
    last = replace(first, mode="ended")
    machine.sources[FIRST].has_read(last)
    machine.roots = []
    machine.jobs.refresh()

    assert machine.jobs.root_of(5) is None
    assert found == (first, 1)
    assert refused is None
    assert machine.sources[FIRST].asked == [Follow(FIRST)]
    assert machine.jobs.root_of(1007) == FIRST
    assert machine.jobs.newest(FIRST)[0] == last
    assert machine.jobs.ask(FIRST, Follow(None)) == "The job has ended."
