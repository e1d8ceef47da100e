"""Which jobs of a node are observed, with made-up sources."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Snapshot
from mpwatch.nodes.agent import jobs_of_node
from mpwatch.nodes.agent.jobs_of_node import JobsOfNode
from mpwatch.observe.sources.live import LiveOptions
from mpwatch.observe.sources.source import Command, Deliver, Follow
from tests.unit.nodes.jobs import rank, snapshot

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
