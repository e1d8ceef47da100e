"""A session detaches at its end the hooks that it injected, and no others."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from mpwatch.attach import attach_session
from mpwatch.attach.attach_session import AttachSession, descended
from mpwatch.attach.injection_log import InjectionLog
from mpwatch.attach.outcomes import Attached, Begun, Detached, Refused
from mpwatch.collect.process.procfs import stat_of
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import ProcSample


def process(pid: int) -> ProcessId:
    return ProcessId(pid, pid * 10)


def sample(pid: int, parent: int, *, is_python: bool = True, state: str = "S") -> ProcSample:
    return ProcSample(
        process=process(pid),
        at_s=0.0,
        parent_pid=parent,
        name="python",
        cmdline=(),
        state=state,
        is_python=is_python,
    )


def test_children_of_an_injected_process_have_its_hook() -> None:
    job = [sample(1, 0), sample(2, 1), sample(3, 2)]

    assert descended(job, {process(1)}, set()) == [process(1), process(2), process(3)]
    assert descended(job, {process(2)}, set()) == [process(2), process(3)]


def test_an_orphan_has_a_hook_of_the_session_where_there_is_no_other() -> None:
    job = [sample(1, 0), sample(2, 1), sample(3, 99), sample(4, 3)]

    assert descended(job, {process(2)}, set()) == [process(2), process(3), process(4)]
    assert descended(job, {process(2)}, {process(1)}) == [process(2)]
    assert descended(job, {process(2)}, {process(3)}) == [process(2)]


def test_a_process_that_had_a_hook_keeps_it_with_its_children() -> None:
    job = [sample(1, 0), sample(2, 1), sample(3, 2), sample(4, 1)]

    assert descended(job, {process(1)}, {process(2)}) == [process(1), process(4)]


def test_an_injected_child_of_a_process_with_an_earlier_hook_is_detached() -> None:
    job = [sample(1, 0), sample(2, 1), sample(3, 2)]

    assert descended(job, {process(2)}, {process(1)}) == [process(2), process(3)]


def test_processes_without_python_and_exited_ones_are_excluded() -> None:
    job = [sample(1, 0), sample(2, 1, is_python=False), sample(3, 1, state="Z"), sample(4, 2)]

    assert descended(job, {process(1)}, set()) == [process(1), process(4)]


def test_a_reused_pid_is_another_process() -> None:
    assert descended([sample(1, 0)], {ProcessId(1, 11)}, set()) == []


def test_a_cycle_of_parents_is_left() -> None:
    assert descended([sample(1, 2), sample(2, 1)], {process(3)}, set()) == []


def test_hooks_injected_before_ctrl_c_are_detached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    detached: list[ProcessId] = []

    def interrupted(*_: object, begun: Begun, **__: object) -> None:
        begun(process(2**22 + 1), "pending call", "")
        raise KeyboardInterrupt

    def detach(target: ProcessId, **_: object) -> Detached:
        detached.append(target)
        return Detached(target, "absent", method="socket")

    monkeypatch.setattr(attach_session, "inject_tree", interrupted)
    monkeypatch.setattr(attach_session, "detach", detach)
    monkeypatch.setattr(attach_session, "FINISH_S", 0.05)  # the injection never finishes
    session = AttachSession(process(2**22 + 1), log=InjectionLog(str(tmp_path / "log")))

    with pytest.raises(KeyboardInterrupt):
        session.inject([sample(2**22 + 1, 0)], lambda status: None)

    assert session.end() == "The hook was detached from 1 process."
    assert detached == [process(2**22 + 1)]


def test_a_session_forgets_processes_that_have_exited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that starts a process for each task has had millions of them after a month."""
    exited = [process(2**22 + number) for number in range(200)]
    own = stat_of(os.getpid()).process
    told = []

    def inject_tree(*_: object, begun: Begun, **__: object) -> None:
        for each in (own, *exited):
            begun(each, "pending call", "")
            told.append(len(session.injected))

    monkeypatch.setattr(attach_session, "REMEMBERED", 50)
    monkeypatch.setattr(attach_session, "FINISH_S", 0.05)  # no injection finishes
    monkeypatch.setattr(attach_session, "inject_tree", inject_tree)
    session = AttachSession(own, log=InjectionLog(str(tmp_path / "log")), keeps=True)
    session.inject([sample(os.getpid(), 0)], lambda status: None)

    assert max(told) == 50
    assert own in session.injected
    assert session.end().startswith("The hook stays in 1 process (--keep)")


def test_no_injection_begins_once_the_session_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = process(2**22 + 1), process(2**22 + 2)
    detached: list[ProcessId] = []

    def inject_tree(*_: object, begun: Begun, is_wanted: Callable[[], bool], **__: object) -> None:
        assert is_wanted()
        begun(first, "pending call", "")
        assert session.end() == "The injection into 1 process was called off."
        assert not is_wanted()
        with pytest.raises(Refused, match="it was called off"):
            begun(second, "pending call", "")

    def detach(target: ProcessId, **_: object) -> Detached:
        detached.append(target)
        return Detached(target, "absent", method="called off", had_hook=False)

    monkeypatch.setattr(attach_session, "inject_tree", inject_tree)
    monkeypatch.setattr(attach_session, "detach", detach)
    monkeypatch.setattr(attach_session, "FINISH_S", 0.01)
    session = AttachSession(first, log=InjectionLog(str(tmp_path / "log")))
    session.inject([sample(first.pid, 0), sample(second.pid, first.pid)], lambda status: None)

    assert detached == [first]


def test_a_process_that_could_not_be_injected_is_not_detached_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have got a hook from elsewhere since; an attempt that is repeated may still arrive."""
    refused, pending = process(2**22 + 1), process(2**22 + 2)
    detached: list[ProcessId] = []

    def inject_tree(
        *_: object, begun: Begun, ended: Callable[[Attached], None], again: bool, **__: object
    ) -> None:
        for each in (refused, pending) if not again else (pending,):
            begun(each, "pending call", "")
        if not again:
            ended(Attached(refused, "absent", "pending call", "the hook could not be loaded"))
            ended(Attached(pending, "pending", "pending call"))
        else:
            ended(Attached(pending, "absent", "pending call", "it cannot be stopped now"))

    def detach(target: ProcessId, **_: object) -> Detached:
        detached.append(target)
        return Detached(target, "absent", method="called off", had_hook=False)

    monkeypatch.setattr(attach_session, "inject_tree", inject_tree)
    monkeypatch.setattr(attach_session, "detach", detach)
    session = AttachSession(refused, log=InjectionLog(str(tmp_path / "log")))
    for again in (False, True):
        session.inject([sample(refused.pid, 0)], lambda status: None, again=again)
    assert session.injected == {pending}
    session.end()

    assert detached == [pending]


@pytest.mark.parametrize("only", [(), (2**22 + 1, 2**22 + 3)])
def test_only_the_chosen_processes_are_injected_and_no_children_of_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, only: tuple[int, ...]
) -> None:
    asked: list[tuple[list[int], bool]] = []

    def inject_tree(
        samples: Sequence[ProcSample], *_: object, with_late_children: bool, **__: object
    ) -> None:
        asked.append(([each.process.pid for each in samples], with_late_children))

    monkeypatch.setattr(attach_session, "inject_tree", inject_tree)
    job = [sample(2**22 + number, 0) for number in (1, 2)]
    job.append(replace(sample(2**22 + 3, 0), is_python=False))
    log = InjectionLog(str(tmp_path / "log"))
    AttachSession(job[0].process, only=only, log=log).inject(job, lambda status: None)

    chosen = [2**22 + 1] if only else [each.process.pid for each in job]
    assert asked == [(chosen, not only)]
