"""Threads that poll for the GPU are told from those that compute, and ranks of NCCL by them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.distributed.nccl_words import pending_calls
from mpwatch.diagnose.analysis.distributed.ranks import place_of, unmoved_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.analysis.waits.gpu import gpu_wait_s, waits_for_gpu
from mpwatch.diagnose.rules.distributed import collective_mismatch, rank_stuck_in_collective
from mpwatch.diagnose.rules.hangs import no_progress
from mpwatch.model.collectives import NcclAnswer, NcclCommunicator, NcclPart, NcclStatus
from mpwatch.model.findings import Severity
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import GpuUse, Process, Snapshot, Thread
from mpwatch.model.source_code import Mark, SourceLine, Statement
from tests.builders.snapshots import (
    MAIN,
    NO_HISTORY,
    NOW_S,
    accounted,
    exited,
    fds,
    found,
    frames,
    main,
    maps,
    only,
    pid,
    process,
    snapshot_of,
    thread,
    ticked,
)

SYNCHRONIZE = ("torch/cuda/__init__.py:synchronize:1162", "train.py:step:40")
EVENT = ("torch/cuda/streams.py:Event.synchronize:254", "train.py:step:40")
ITEM = ("train.py:step:41",)
COMPUTE = ("train.py:step:42",)
ON_GPU = {"gpus": (GpuUse(0, 1 << 30),)}


def source(job: Snapshot, line: int, text: str) -> Snapshot:
    (frame,) = frames(f"train.py:step:{line}")
    return replace(job, source=(SourceLine(frame.file, line, "step", Statement(line, text)),))


def polls(*stack: str, number: int = 300, **fields: Any) -> Thread:
    taken = {"state": "R", "has_gil": False, "is_active": True, "cpu_percent": 99.0, **fields}
    return thread(number, *stack, still_s=0.0, stack_age_s=0.0, **taken)


def user(it: Thread, **more: Any) -> Process:
    return process(300, threads=[it], more={**ON_GPU, **more})


def is_wait(it: Process, text: str = "loss = mean.item()", line: int = 41) -> bool:
    index = Index(source(snapshot_of(main(), it), line, text), NO_HISTORY)
    return waits_for_gpu(index, it, it.threads[0])


@pytest.mark.parametrize("stack", [SYNCHRONIZE, EVENT, ITEM])
def test_a_thread_that_polls_for_the_gpu_waits(stack: tuple[str, ...]) -> None:
    assert is_wait(user(polls(*stack)))


@pytest.mark.parametrize(
    "text",
    [
        *("x.cpu()", "print(loss.tolist())", "a = b.detach().cpu().numpy()", 'y = x.to("cpu")'),
        *("stat = torch.tensor([loss], device=device)", 'torch.as_tensor(ids, device="cuda:0")'),
    ],
)
def test_a_line_that_reads_a_result_of_the_gpu_waits_for_it(text: str) -> None:
    assert is_wait(user(polls(*ITEM)), text)


@pytest.mark.parametrize(
    "text",
    [
        *("x = numpy.linalg.svd(y)", "item(x)", "self.items = []"),
        *("x = torch.tensor(rows)", 'x = torch.tensor(rows, device="cpu")'),
        "x = torch.zeros(3, device=device)",
    ],
)
def test_another_line_computes(text: str) -> None:
    assert not is_wait(user(polls(*ITEM)), text)


def test_without_a_gpu_or_with_the_gil_a_thread_computes() -> None:
    assert not is_wait(process(300, threads=[polls(*ITEM)]))
    assert is_wait(process(300, threads=[polls(*ITEM)], fds=fds(20, gpu=3)))
    assert not is_wait(user(polls(*SYNCHRONIZE, has_gil=True)))
    assert not is_wait(user(polls("torch/cuda/memory.py:empty_cache:224", *ITEM)))


def test_a_thread_that_waits_for_the_gpu_on_a_futex_waits() -> None:
    """As CUDA does with `cudaDeviceScheduleBlockingSync`."""
    asleep: dict[str, Any] = {"state": "S", "is_active": False}
    assert is_wait(user(polls(*SYNCHRONIZE, waits=WaitedOn("futex", "futex"), **asleep)))
    assert not is_wait(user(polls(*SYNCHRONIZE, waits=WaitedOn("timer", "nanosleep"), **asleep)))


def rank(number: int, it: Thread) -> Process:
    watchdog = thread(350 + number, name="pt_nccl_watchdg")
    return process(
        300 + number,
        "rank",
        threads=[it, watchdog],
        label=f"rank {number}",
        rank=number,
        maps=maps(400, libraries=("libnccl.so.2",)),
        more=ON_GPU,
    )


def readings(
    *ranks: Process,
    seconds: int = 50,
    status: NcclStatus | None = None,
    source: tuple[SourceLine, ...] = (),
    marks: tuple[Mark, ...] = (),
) -> Snapshot:
    """Ranks that were found the same in each second, polling with a whole core."""
    return accounted(
        *(
            snapshot_of(
                main(),
                *(ticked(each, {each.pid: 100 * second}) for each in ranks),
                at_s=NOW_S - seconds + second,
                nccl=status,
                source=source,
                marks=marks,
            )
            for second in range(seconds + 1)
        )
    )


def asleep(number: int) -> Thread:
    waits = WaitedOn("timer", "clock_nanosleep")
    return thread(300 + number, "train.py:prepare:80", waits=waits, stack_age_s=0.0, waits_s=50.0)


def status(*parts: NcclPart, same_s: float = 40.0) -> NcclStatus:
    answer = NcclAnswer("2.28.9", 1, (NcclCommunicator("0x1f", 2, parts=parts),))
    return NcclStatus(pid(300), NOW_S, answer, NOW_S - same_s)


BEHIND = (NcclPart("AllReduce", "21", 1, (0,)), NcclPart("AllReduce", "20", 1, (1,)))


def test_the_account_and_the_waits_name_the_gpu() -> None:
    job = readings(rank(0, polls(*SYNCHRONIZE)))
    index = Index(job, NO_HISTORY)
    joins = main(threads=[thread(MAIN, waits=WaitedOn("child", "wait4", ("pid 300",)))])
    joined = Index(snapshot_of(joins, *job.processes[1:]), NO_HISTORY)

    assert gpu_wait_s(job.processes[1], index) == pytest.approx(50, abs=1)
    now = job.account.processes[pid(300)].main.now
    assert (now.kind, now.target, now.place) == ("spinning", "gpu", "train.py:40 step")
    ends = [chain.links[-1].words for chain in wait_graph(joined).chains]
    assert "waits for the GPU, train.py:40 step" in ends


def test_a_rank_that_sleeps_while_another_polls_for_the_gpu_is_named() -> None:
    job = readings(rank(0, polls(*SYNCHRONIZE)), rank(1, asleep(1)), status=status(*BEHIND))

    finding = only(rank_stuck_in_collective.check, job)

    assert finding.process == pid(301)
    assert finding.summary.startswith("rank 0 (300) waits in AllReduce 21 of NCCL for rank 1")
    assert "prepare" in finding.summary
    assert "train.py:40 step" in finding.evidence[0]
    assert any("NCCL RAS" in line for line in finding.evidence)


def test_a_rank_that_has_ended_while_another_polls_for_the_gpu_is_named() -> None:
    ended = replace(rank(1, polls(*COMPUTE, number=301)), ended=exited(301, exit_code=1))
    job = readings(rank(0, polls(*SYNCHRONIZE)))
    job = replace(job, processes=(*job.processes, ended))

    finding = only(rank_stuck_in_collective.check, job)

    assert finding.summary == "rank 0 (300) waits in a collective on the GPU for rank 1 (301)"
    assert "rank 1 (301) ended: exit code 1" in finding.evidence


def test_a_rank_on_its_way_to_its_own_wait_for_the_gpu_is_not_named() -> None:
    """Ranks whose steps take seconds wait for the GPU nearly all of the time."""
    on_its_way = polls(*COMPUTE, number=301, has_gil=True)
    job = readings(rank(0, polls(*SYNCHRONIZE)), rank(1, on_its_way))

    assert found(rank_stuck_in_collective.check, job) == []
    assert found(collective_mismatch.check, job) == []


def test_ranks_that_all_poll_for_the_gpu_are_no_more_than_information() -> None:
    both = (rank(0, polls(*SYNCHRONIZE)), rank(1, polls(*SYNCHRONIZE, number=301)))

    finding = only(rank_stuck_in_collective.check, readings(*both))

    assert finding.severity is Severity.INFO
    assert "each at one line" in finding.summary
    assert "or each of its steps waits there" in finding.cause
    assert found(rank_stuck_in_collective.check, readings(*both, seconds=35)) == []
    for rule in (collective_mismatch, no_progress):
        assert found(rule.check, readings(*both)) == []


def counted(it: Process, *groups: tuple[int, int]) -> Process:
    """The rank with the launched and ended collectives of its groups, unchanged for 45 s."""
    states = [
        {"id": f"nccl:{n}", "enqueued": begun, "completed": ended, "unchanged_ns": 45 * 10**9}
        for n, (begun, ended) in enumerate(groups)
    ]
    return replace(it, gauges={"collectives": {"groups": {}, "states": states}})


def test_ranks_whose_launched_collectives_do_not_end_stand_still() -> None:
    both = (rank(0, polls(*SYNCHRONIZE)), rank(1, polls(*SYNCHRONIZE, number=301)))

    finding = only(rank_stuck_in_collective.check, readings(*(counted(r, (8, 7)) for r in both)))

    assert finding.severity is Severity.WARNING
    assert "what they have launched does not end" in finding.summary


def test_ranks_of_which_torch_has_counted_more_launches_are_a_mismatch() -> None:
    """RAS counts no all_to_all, so that it calls all ranks equal."""
    ahead = counted(rank(0, polls("train.py:step:42")), (25, 24), (120, 116))
    behind = counted(rank(1, polls("train.py:step:42", number=301)), (25, 24), (116, 116))
    source = lines((42, "x = x.to(device)", ("for x in batches:",)))
    anew = Statement(22, "return torch.empty(0, self.dim)")
    under = "if x.size(0) == 0: in line 21"
    cut = Mark("cuts-graph", source[0].file, "forward", under, anew)

    job = readings(ahead, behind, source=source)
    finding = only(collective_mismatch.check, job)
    shown = only(collective_mismatch.check, readings(ahead, behind, source=source, marks=(cut,)))

    assert finding.severity is Severity.CRITICAL
    assert finding.process == pid(301)
    assert "rank 1 (301) has launched 116 collectives of group 1, rank 0 (300) 4" in finding.summary
    assert "backward" not in finding.cause
    assert "return torch.empty(0, self.dim)` at train.py:22 forward" in shown.cause
    assert found(rank_stuck_in_collective.check, job) == []


def test_a_rank_that_is_only_a_few_launches_ahead_of_the_gpu_is_no_mismatch() -> None:
    ahead = counted(rank(0, polls(*SYNCHRONIZE)), (120, 112))
    behind = counted(rank(1, polls(*SYNCHRONIZE, number=301)), (116, 112))

    assert found(collective_mismatch.check, readings(ahead, behind)) == []


def test_the_one_line_that_launches_a_collective_is_named_where_ranks_wait_later() -> None:
    waiting, other = rank(0, polls("train.py:step:42")), waits_in(1, "barrier", "train.py:step:45")
    source = lines((42, "loss = loss.item()", ()), (45, "dist.barrier(cpu)", ()))
    file = source[0].file
    launches = Mark("collective", file, "average", "all_reduce", Statement(9, "all_reduce(flat)"))
    scales = Mark("backward", file, "step", "", Statement(40, "self.scaler.scale(loss).backward()"))
    job = replace(readings(waiting, other, status=status(*BEHIND), source=source))

    known = only(collective_mismatch.check, replace(job, marks=(launches,)))
    scaled = only(collective_mismatch.check, replace(job, marks=(launches, scales)))

    assert "`all_reduce(flat)` at train.py:9 average" in known.cause
    assert "GradScaler" not in known.cause
    assert "a GradScaler leaves out optimizer.step()" in scaled.cause


def test_the_early_return_before_a_collective_of_nccl_is_named() -> None:
    """One rank has returned before it and is in the next round, at an earlier line of the loop."""
    ahead = rank(0, polls("train.py:load:12", "train.py:step:42"))
    inside = rank(1, polls("train.py:update:55", "train.py:step:46", number=301))
    parts = (
        NcclCommunicator("0x1f", 2, parts=BEHIND),
        NcclCommunicator(
            "0x2f",
            2,
            parts=(NcclPart("AllReduce", "0", 1, (0,)), NcclPart("AllReduce", "1", 1, (1,))),
        ),
    )
    returns = Statement(50, "if denom == 0: return None")
    round_ = ("for step in range(steps):",)
    of_step = lines((42, "x = load()", round_), (46, "update()", round_))
    file = of_step[0].file
    source = (
        *of_step,
        SourceLine(file, 12, "load", Statement(12, "return x.to(device)")),
        SourceLine(file, 55, "update", Statement(55, "total.tolist()"), after=(returns,)),
    )
    nccl = NcclStatus(pid(300), NOW_S, NcclAnswer("2.28.9", 2, parts), NOW_S - 40)

    finding = only(collective_mismatch.check, readings(ahead, inside, status=nccl, source=source))

    assert "comes after `if denom == 0: return None` of line 50" in finding.cause
    assert "rank 0 (300) has gone on to AllReduce 21 of NCCL" in finding.cause


def test_ranks_that_all_poll_and_have_launched_different_collectives_are_a_mismatch() -> None:
    both = (rank(0, polls(*SYNCHRONIZE)), rank(1, polls(*SYNCHRONIZE, number=301)))
    parts = (NcclPart("Broadcast", "1", 1, (1,)), NcclPart("Broadcast", "0", 1, (0,)))
    job = readings(*both, status=status(*parts))

    finding = only(collective_mismatch.check, job)

    assert finding.severity is Severity.WARNING
    assert "all 2 ranks wait for the GPU" in finding.summary
    assert "Broadcast 1" in finding.summary
    assert found(rank_stuck_in_collective.check, job) == []


C10D = "torch/distributed/distributed_c10d.py"


def lines(*found: tuple[int, str, tuple[str, ...]]) -> tuple[SourceLine, ...]:
    """The source of lines of `step` in train.py, with what is around each."""
    (frame,) = frames("train.py:step:1")
    return tuple(
        SourceLine(
            frame.file,
            line,
            "step",
            Statement(line, text),
            within=tuple(Statement(n, header) for n, header in enumerate(around, 30)),
            defined=20,
        )
        for line, text, around in found
    )


def waits_in(number: int, collective: str, *stack: str) -> Process:
    """A rank without cpu time in a collective of gloo."""
    stack = (f"{C10D}:{collective}", *stack)
    wait = WaitedOn("futex", "futex", ("futex 0x7f",), futex_command=9)
    return rank(number, thread(300 + number, *stack, waits=wait, still_s=30.0, stack_age_s=0.0))


def test_a_rank_in_a_handler_and_one_that_waits_for_a_collective_of_nccl_are_a_mismatch() -> None:
    waiting = rank(0, polls("train.py:step:42"))
    failed = waits_in(1, "barrier", "train.py:step:45")
    source = lines(
        (42, "return loss.item()", ("for batch in loader:",)),
        (45, "dist.barrier(cpu)", ("for batch in loader:", "except torch.OutOfMemoryError:")),
    )
    known = readings(waiting, failed, status=status(*BEHIND), source=source)

    finding = only(collective_mismatch.check, known)

    assert finding.severity is Severity.CRITICAL
    assert finding.summary.endswith("1 in AllReduce 21 of NCCL, 1 in barrier")
    assert "rank 0 (300) waits at train.py:42 step" in finding.evidence[0]
    assert "rank 1 (301) is in barrier in the handler `except torch.Out" in finding.cause
    assert found(rank_stuck_in_collective.check, known) == []


def test_ranks_of_which_one_has_ended_the_loop_of_the_other_are_a_mismatch() -> None:
    """Each has launched a collective of another communicator, which the other one has not."""
    both = (rank(0, polls("train.py:step:42")), rank(1, polls("train.py:step:50", number=301)))
    answer = NcclAnswer(
        "2.28.9",
        2,
        (
            NcclCommunicator("0x1f", 2, parts=BEHIND),
            NcclCommunicator(
                "0x2f",
                2,
                parts=(NcclPart("AllReduce", "2", 1, (0,)), NcclPart("AllReduce", "3", 1, (1,))),
            ),
        ),
    )
    source = lines(
        (42, "log(loss.item())", ("for batch in loader:",)), (50, "mean = total.tolist()", ())
    )
    nccl = NcclStatus(pid(300), NOW_S, answer, NOW_S - 40)
    job = readings(*both, status=nccl, source=source)

    finding = only(collective_mismatch.check, job)

    assert "rank 1 (301) has ended the loop `for batch in loader:` of line 30" in finding.cause
    assert "for AllReduce 3 of NCCL, which comes after it" in finding.cause


def test_ranks_that_have_launched_the_same_collectives_are_no_mismatch() -> None:
    both = (rank(0, polls("train.py:step:42")), waits_in(1, "barrier", "train.py:step:45"))
    source = lines((42, "return loss.item()", ()), (45, "dist.barrier(cpu)", ()))
    job = readings(*both, source=source)

    assert found(collective_mismatch.check, job) == []


@pytest.mark.parametrize(
    ("text", "waits"),
    [
        ("x = x.to(device)", True),
        ("y = batch['y'].to(self.device)", True),
        ("x = x.cuda()", True),
        ("x = x.to(local_rank)", True),
        ("x = x.to(device, non_blocking=True)", False),
        ("x = x.cuda(non_blocking=True)", False),
        ("x = x.to(torch.float16)", False),
    ],
)
def test_a_copy_to_the_gpu_waits_for_what_was_launched_before(text: str, waits: bool) -> None:
    assert is_wait(user(polls(*ITEM)), text) is waits


def test_ranks_of_other_machines_count_for_what_was_not_launched() -> None:
    """The job has four ranks, of which two run here: both have launched what others have not."""
    ahead = (NcclPart("AllReduce", "21", 2, (0, 1)), NcclPart("AllReduce", "20", 2, (2, 3)))
    answer = NcclAnswer("2.28.9", 1, (NcclCommunicator("0x1f", 4, parts=ahead),))
    nccl = NcclStatus(pid(300), NOW_S, answer, NOW_S - 40)
    here = [rank(0, polls(*SYNCHRONIZE)), rank(1, polls(*SYNCHRONIZE, number=301))]
    told = [
        replace(each, sample=replace(each.sample, environment={"WORLD_SIZE": "4"})) for each in here
    ]

    known, alone = Index(readings(*told, status=nccl)), Index(readings(*here, status=nccl))
    first = known.snapshot.processes[1]

    assert set(pending_calls(known)) == {0, 1}
    assert pending_calls(alone) == {}
    assert place_of(first, known) == "AllReduce 21 of NCCL"
    assert (unmoved_s(first, known) or 0) >= 40
    assert (unmoved_s(first, alone) or 0) < 1
