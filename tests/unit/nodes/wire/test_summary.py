"""The summary that a node sends each second, and its rows at the head."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mpwatch.model.collectives import Length, RankHabit
from mpwatch.model.findings import Severity
from mpwatch.model.host import CgroupSample, FileSystemSample
from mpwatch.model.ids import HookState, ProcessId, Role
from mpwatch.model.samples import Ended, FdSample, Frame
from mpwatch.model.snapshot import Hook, Process, Thread
from mpwatch.model.waits import WaitChain, WaitGraph, WaitLink
from mpwatch.nodes.across.judge import NODES_DIFFER, job_findings
from mpwatch.nodes.agent.rows import HELD_S, Rows
from mpwatch.nodes.head.node import NodeView
from mpwatch.nodes.wire.messages import (
    Answer,
    Ask,
    FrameReader,
    Hello,
    NotAMessage,
    Sections,
    Summary,
    head_frame,
    message_of_head,
    message_of_node,
    node_frame,
)
from mpwatch.nodes.wire.summary import (
    BYTES_PER_S,
    MalformedSummary,
    NodeRow,
    NodeSummary,
    RankRow,
    SummaryReader,
    SummaryWriter,
    row_of,
)
from tests.unit.nodes.jobs import ALL_REDUCE, SAVE, finding, rank, snapshot


def sent(message: Summary) -> Summary:
    """The message as the head decodes it."""
    frame = node_frame(message)
    decoded = message_of_node(FrameReader(1 << 24).feed(frame)[0].body)
    assert isinstance(decoded, Summary)
    return decoded


def busy_job(second: int) -> Sections:
    """64 ranks that all do something else each second."""
    chance = random.Random(second)
    ranks = [
        rank(
            number,
            at_s=float(second),
            doing=f"fetches batch {chance.randrange(10_000)} for {chance.random():.1f} s, "
            "train.py:48 forward",
            cpu_percent=chance.randrange(1000) / 10,
        )
        for number in range(64)
    ]
    found = tuple(finding(each) for each in ranks[: chance.randrange(4)])
    return ROWS.sections([snapshot(ranks, at_s=float(second), findings=found)])


ROWS = Rows()


def test_64_processes_that_change_each_second_stay_below_the_limit_of_bytes() -> None:
    writer, reader = SummaryWriter(), SummaryReader()
    sizes = []
    for second in range(30):
        message = writer.next(float(second), busy_job(second))
        sizes.append(len(node_frame(message)))
        assert reader.apply(sent(message))

    assert all(size <= BYTES_PER_S for size in sizes[1:])
    assert len(reader.summary().ranks) == 64


def test_a_calm_job_costs_next_to_nothing() -> None:
    writer = SummaryWriter()
    ranks = [rank(n, stack=ALL_REDUCE, still_s=50.0) for n in range(64)]
    sizes = []
    for second in range(5):
        at_s = 100.0 + second
        ranks = [rank(n, at_s=at_s, stack=ALL_REDUCE, still_s=50.0 + second) for n in range(64)]
        sections = ROWS.sections([snapshot(ranks, at_s=at_s)])
        sizes.append(len(node_frame(writer.next(at_s, sections))))

    assert max(sizes[1:]) < 200


def test_values_that_did_not_fit_arrive_later_with_their_last_value() -> None:
    writer, reader = SummaryWriter(), SummaryReader()
    for second in range(4):
        reader.apply(sent(writer.next(float(second), busy_job(second))))
    assert not writer.is_complete
    final = busy_job(3)
    for second in range(4, 12):
        reader.apply(sent(writer.next(float(second), final)))

    assert writer.is_complete
    whole = SummaryReader()
    whole.apply(sent(SummaryWriter().next(11.0, final)))
    assert reader.summary() == whole.summary()


def told(second: int, *, ranks: int = 64) -> Sections:
    """20 findings and all ranks but the last do something else each second."""
    made = [rank(n, at_s=100.0 + second, doing=f"fetches batch {second}") for n in range(ranks - 1)]
    moved = "saves" if second >= 3 else "computes"
    made.append(rank(ranks - 1, at_s=100.0 + second, doing=moved))
    found = tuple(
        replace(finding(each), summary=f"{each.label} has opened {second} files of {'x' * 200}")
        for each in made[:20]
    )
    return Rows().sections([snapshot(made, at_s=100.0 + second, findings=found)])


def test_findings_that_change_each_second_do_not_keep_ranks_from_being_sent() -> None:
    writer, reader = SummaryWriter(), SummaryReader()
    sizes, fetched = [], set()
    for second in range(20):
        message = writer.next(100.0 + second, told(second))
        sizes.append(len(node_frame(message)))
        reader.apply(sent(message))
        fetched.add(reader.summary().ranks[0].doing)
        # One that changes for the first time is sent at once.
        assert reader.summary().ranks[63].doing == ("saves" if second >= 3 else "computes")

    assert max(sizes[1:]) <= BYTES_PER_S
    assert len(fetched) >= 5
    assert len({row.summary.split(" of ")[0][-2:] for row in reader.summary().findings}) <= 4


def test_a_text_of_which_only_a_duration_changes_is_not_sent_each_second() -> None:
    rows, writer, reader = Rows(), SummaryWriter(), SummaryReader()
    changed, shown = [], []
    for second in range(25):
        at_s = 100.0 + second
        made = rank(0, at_s=at_s, doing=f"waits for batch 7 of worker 3, {second} s")
        of = replace(finding(made), summary=f"rank 0 waits for 7 of 8 workers since {second} s")
        message = writer.next(at_s, rows.sections([snapshot([made], at_s=at_s, findings=(of,))]))
        reader.apply(sent(message))
        changed.append(bool(message.changed))
        shown.append((reader.summary().ranks[0].doing, reader.summary().findings[0].summary))

    assert sum(changed) == 3
    assert shown[9] == shown[0]
    assert shown[10] == (
        "waits for batch 7 of worker 3, 10 s",
        "rank 0 waits for 7 of 8 workers since 10 s",
    )
    made = rank(0, at_s=125.0, doing="waits for batch 8 of worker 3, 24 s")
    (row,) = rows.sections([snapshot([made], at_s=125.0)])["ranks"].values()
    assert row["doing"] == "waits for batch 8 of worker 3, 24 s"


def test_the_widest_rows_stay_below_the_limit_of_bytes() -> None:
    wide = [chr(0x10300) * 160, chr(0x10301) * 160]

    def sections(second: int) -> Sections:
        text = wide[second % 2]
        node = NodeRow(
            facts={str(n): text for n in range(4)},
            problems=(text,) * 5,
            unread=text,
            stacks=(text,) * 4,
        )
        fields = ("job", "doing", "line", "ended", "group", "operation", "works_at")
        of = msgspec.structs.replace(
            RankRow(pid=1, label=text, rank=3), **dict.fromkeys(fields, text)
        )
        ranks = {str(second // 4): row_of(of), "calm": row_of(RankRow(2, "rank 0"))}
        return {"node": {"": row_of(node)}, "ranks": ranks}

    writer, reader = SummaryWriter(), SummaryReader()
    sizes = []
    for second in range(8):
        message = writer.next(float(second), sections(second))
        sizes.append(len(node_frame(message)))
        assert reader.apply(sent(message))
    for _ in range(4):
        second += 1
        reader.apply(sent(writer.next(float(second), sections(7))))

    assert max(sizes[1:]) <= BYTES_PER_S
    whole = SummaryReader()
    whole.apply(sent(SummaryWriter().next(float(second), sections(7))))
    assert reader.summary() == whole.summary()


def test_a_job_that_ends_with_many_ranks_stays_below_the_limit_of_bytes() -> None:
    ranks = {f"{n}.{10**15 + n}": row_of(RankRow(n, f"rank {n}")) for n in range(256)}
    writer, reader = SummaryWriter(), SummaryReader()
    reader.apply(sent(writer.next(0.0, {"ranks": ranks})))
    sizes = []
    for second in range(1, 4):
        message = writer.next(float(second), {"ranks": {}})
        sizes.append(len(node_frame(message)))
        reader.apply(sent(message))

    assert max(sizes) <= BYTES_PER_S
    assert reader.summary().ranks == ()


rows = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(RankRow, pid=st.integers(1, 9), label=st.text(max_size=8), doing=st.text()),
    max_size=6,
)


@pytest.mark.slow
@given(st.lists(rows, min_size=1, max_size=6))
def test_the_head_has_the_rows_of_the_node_after_each_message(
    moments: list[dict[str, RankRow]],
) -> None:
    writer, reader = SummaryWriter(bytes_per_s=1 << 20), SummaryReader()
    for second, moment in enumerate(moments):
        sections = {"ranks": {key: row_of(row) for key, row in moment.items()}}
        message = sent(writer.next(float(second), sections))
        assert reader.apply(message)

        whole = SummaryReader()
        whole.apply(sent(SummaryWriter().next(float(second), sections)))
        assert set(reader.summary().ranks) == set(whole.summary().ranks)


def test_a_message_after_a_lost_one_is_ignored_until_a_full_one_arrives() -> None:
    writer, reader = SummaryWriter(), SummaryReader()
    reader.apply(writer.next(0.0, busy_job(0)))
    writer.next(1.0, busy_job(1))

    assert not reader.apply(writer.next(2.0, busy_job(2)))
    writer.restart()
    assert reader.apply(writer.next(3.0, busy_job(3)))


def test_a_summary_of_wrong_types_or_too_many_rows_is_refused() -> None:
    with pytest.raises(MalformedSummary):
        SummaryReader().apply(
            Summary(0, 1.0, is_full=True, changed={"ranks": {"a": {"pid": "x", "label": "b"}}})
        )
    many = {str(n): {"pid": n, "label": "b"} for n in range(2000)}
    with pytest.raises(MalformedSummary):
        SummaryReader().apply(Summary(0, 1.0, is_full=True, changed={"ranks": many}))


@given(st.binary(max_size=200))
def test_any_body_is_a_message_or_refused(body: bytes) -> None:
    for decode in (message_of_node, message_of_head):
        try:
            decode(body)
        except NotAMessage:
            continue


def test_text_of_a_node_is_sanitized() -> None:
    frame = node_frame(Hello("1.0\x1b[2J", "node\x1b]0;x\x07\n7", 5))
    hello = message_of_node(FrameReader(1000).feed(frame)[0].body)

    assert hello == Hello("1.0", "node 7", 5)
    message = Summary(0, 1.0, True, {"ranks": {"a": {"pid": 1, "label": "\x1b[31mred"}}})
    decoded = sent(message)
    assert decoded.changed["ranks"]["a"]["label"] == "red"


def test_an_answer_becomes_what_json_can_have() -> None:
    hostile = {"nan": math.nan, "raw": b"\x1b[2J", "deep": [{"text": "a\x1b[31mb"}], "\x1bckey": 1}
    decoded = message_of_node(FrameReader(9999).feed(node_frame(Answer(1, hostile)))[0].body)

    assert isinstance(decoded, Answer)
    assert decoded.document is not None
    assert json.loads(json.dumps(decoded.document, allow_nan=False)) == decoded.document
    assert all(text.isprintable() for text in (*decoded.document, decoded.document["raw"]))
    assert decoded.document["nan"] is None
    assert decoded.document["deep"] == [{"text": "ab"}]


def test_an_answer_that_is_nested_without_end_is_refused() -> None:
    nested: list[object] = []
    for _ in range(100):
        nested = [nested]
    frame = node_frame(Answer(1, {"a": nested}))

    with pytest.raises(NotAMessage):
        message_of_node(FrameReader(9999).feed(frame)[0].body)


def test_a_request_is_decoded_as_it_was_sent() -> None:
    ask = Ask(7, "dump", stacks=False)

    assert message_of_head(FrameReader(1000).feed(head_frame(ask))[0].body) == ask


def summary_of(*args: object, **kwargs: object) -> NodeSummary:
    reader = SummaryReader()
    sections = Rows().sections(*args, **kwargs)  # type: ignore[arg-type]
    reader.apply(sent(SummaryWriter().next(100.0, sections)))
    return reader.summary()


def test_the_summary_of_a_job_has_its_ranks_findings_and_limits() -> None:
    waiting = rank(0, stack=ALL_REDUCE, still_s=30.0, doing="waits in all_reduce")
    dead = rank(1, ended=Ended(rank(1).process, 90.0, signal=9))
    summary = summary_of(
        [snapshot([waiting, dead], findings=(finding(waiting, Severity.CRITICAL),))]
    )

    assert summary.node.state == "watching"
    assert summary.node.counts == {"rank": 1}
    assert summary.node.shm_percent == 50
    assert (summary.node.fds_percent, summary.node.maps_percent) == (6, 1)
    assert summary.node.memory_percent is None
    assert summary.node.facts["python"] == "3.11"
    assert summary.node.facts["OMP_NUM_THREADS"] == "8"
    first, second = summary.ranks
    assert (first.rank, first.world_size, first.job) == (0, 64, "10.0.0.1:29500")
    assert (first.place, first.line) == ("all_reduce", "train.py:48 train")
    assert first.quiet_at_s == 70.0
    assert first.severity == "critical"
    assert (second.is_ended, second.has_failed) == (True, True)
    assert [(each.rule, each.eta_s) for each in summary.findings] == [
        ("fd-exhaustion-receiver", 40)
    ]


def test_a_rank_that_was_never_seen_to_move_is_told_from_one_that_was() -> None:
    rows = Rows()

    def reading(at_s: float, still_s: float | None) -> list[bool]:
        never = rank(0, at_s=at_s, stack=ALL_REDUCE, still_s=at_s - 99.0)
        other = rank(1, at_s=at_s, stack=ALL_REDUCE, still_s=still_s)
        before = rank(2, at_s=at_s, stack=ALL_REDUCE, still_s=at_s - 40.0)  # as the kernel knows
        reader = SummaryReader()
        sections = rows.sections([snapshot([never, other, before], at_s=at_s)])
        reader.apply(sent(SummaryWriter().next(at_s, sections)))
        return [row.is_since_watched for row in reader.summary().ranks]

    assert reading(100.0, None) == [True, False, False]
    assert reading(140.0, 20.0) == [True, False, False]


def with_gauges(state: HookState, **gauges: object) -> Process:
    """A rank with a hook that has reported these gauges."""
    return replace(rank(0, still_s=30.0), hook=Hook(state), gauges=gauges)


GROUP = {"id": "0", "enqueued": 7, "completed": 6}
RECORD = {"group": "0", "number": 7, "operation": "gloo:all_reduce", "is_unfinished": True}


@pytest.mark.parametrize(
    ("process", "is_due"),
    [
        (rank(0, still_s=30.0), False),
        (with_gauges("absent"), False),
        (with_gauges("ready"), True),
        (with_gauges("silent"), True),
        (with_gauges("ready", own={}), False),
        (with_gauges("ready", collectives={"groups": {}, "states": [GROUP]}), True),
        (with_gauges("ready", collectives={"groups": {}, "states": [GROUP | RECORD]}), False),
        (with_gauges("ready", collectives={"states": [GROUP | {"id": "nccl:0"}]}), False),
        (with_gauges("ready", collectives={"states": [GROUP | {"enqueued": -1}]}), False),
        (with_gauges("ready", collectives={"error": "this torch has no flight recorder"}), False),
    ],
)
def test_a_rank_whose_recorder_is_still_to_be_read_says_so(process: Process, is_due: bool) -> None:
    (row,) = summary_of([snapshot([process])]).ranks

    assert row.is_recorder_due is is_due


def test_so_does_one_with_a_server_in_place_of_a_hook() -> None:
    process = rank(0, still_s=30.0)
    server = replace(process.threads[0], tid=9, name="pt_workerserver")
    environment = {**process.sample.environment, "TORCH_WORKER_SERVER_SOCKET": "/tmp/a"}
    served = replace(
        process,
        threads=(*process.threads, server),
        sample=replace(process.sample, environment=environment),
    )
    read = replace(served, gauges={"collectives": {"groups": {}, "states": [RECORD]}})

    assert summary_of([snapshot([served])]).ranks[0].is_recorder_due
    assert not summary_of([snapshot([read])]).ranks[0].is_recorder_due


def test_what_a_rank_waits_for_on_its_node_is_part_of_its_row() -> None:
    late = rank(0, stack=SAVE, still_s=30.0)
    worker = ProcessId(77, 5)
    links = (
        WaitLink(ProcessId(1, 1), 1, "launcher", "waits for the end of its ranks"),
        WaitLink(late.process, 1000, "rank 0", "waits for a batch"),
        WaitLink(worker, 77, "worker 0 (77)", "waits for tcp 10.0.0.1:5 > 10.0.0.9:6"),
    )
    graph = WaitGraph(chains=(WaitChain(links, "unknown"),))
    summary = summary_of([replace(snapshot([late]), waits=graph)])
    own = replace(links[1], words="waits for data on tcp 10.0.0.1:5 > 10.0.0.9:6, train.py:91 save")
    alone = WaitGraph(chains=(WaitChain((links[0], own), "unknown"),))
    thread = WaitGraph(chains=(WaitChain((replace(own, tid=9),), "unknown"),))

    assert summary.ranks[0].chain == (
        "rank 0 waits for a batch <- worker 0 (77) waits for tcp 10.0.0.1:5 > 10.0.0.9:6"
    )
    assert summary_of([replace(snapshot([late]), waits=alone)]).ranks[0].chain == (
        "waits for data on tcp 10.0.0.1:5 > 10.0.0.9:6"
    )
    assert summary_of([replace(snapshot([late]), waits=thread)]).ranks[0].chain == ""


def test_memory_is_compared_with_the_limit_of_the_job_or_with_the_machine() -> None:
    made = snapshot([rank(0)])
    host = replace(made.host, memory_total_bytes=100 << 30, memory_available_bytes=75 << 30)
    group = CgroupSample(2, "/job", memory_bytes=9 << 30, memory_limit_bytes=10 << 30)
    free = CgroupSample(2, "/job", memory_bytes=9 << 30)

    def percent(**changes: Any) -> int | None:
        return summary_of([replace(made, host=replace(host, **changes))]).node.memory_percent

    assert percent(cgroup=group) == 90
    assert percent(cgroup=free) == percent() == 25


@pytest.mark.parametrize(
    ("name", "limit", "words"),
    [
        ("locked memory", 8 << 20, "8.0M"),
        ("locked memory", None, "unlimited"),
        ("cpu time", 3600, "3600 s"),
        ("processes", 4096, "4096"),
        # The kernel derives it from the size of the memory, and equal machines differ a little.
        ("processes", 96_364, "32768 or more"),
        ("processes", 96_370, "32768 or more"),
        ("processes", None, "32768 or more"),
    ],
)
def test_limits_are_compared_where_they_may_harm(name: str, limit: int | None, words: str) -> None:
    made = rank(0)
    made = replace(made, sample=replace(made.sample, limits={name: limit}))

    assert summary_of([snapshot([made])]).node.facts[f"{name} limit"] == words


def with_sample(number: int, *, port: str = "29500", **changes: Any) -> Process:
    """A rank with other facts; `environment` is added to its own."""
    made = rank(number)
    added = {"MASTER_PORT": port, **changes.pop("environment", {})}
    environment = {**made.sample.environment, **added}
    return replace(made, sample=replace(made.sample, environment=environment, **changes))


def of_node(*processes: Process) -> NodeRow:
    return summary_of([snapshot(processes)]).node


def test_the_limit_of_open_files_is_compared() -> None:
    assert of_node(rank(0), rank(1)).facts["open files limit"] == "1024"


def test_a_rank_with_another_limit_than_the_others_of_its_node_is_a_difference() -> None:
    few = with_sample(3, fds=FdSample(60, 512, 1024))
    nodes = [[rank(0), few], [rank(1), rank(4)], [rank(2), rank(5)]]
    views = [
        NodeView(f"n{n}", "live", summary=summary_of([snapshot(ranks)]))
        for n, ranks in enumerate(nodes)
    ]

    found = next(each for each in job_findings(views) if each.rule == NODES_DIFFER)

    assert found.evidence == (
        "open files limit: 1024 on n1, n2; mixed: 1024 (rank 0), 512 (rank 3) on n0",
    )
    # Those of another job on the same node may differ.
    other = with_sample(3, fds=FdSample(60, 512, 1024), port="29501")
    assert "open files limit" not in of_node(rank(0), other).facts


def test_variables_of_libraries_are_compared_and_those_of_each_rank_are_not() -> None:
    libraries = {"NCCL_IB_DISABLE": "1", "LD_LIBRARY_PATH": "/opt/lib", "NCCL_DEBUG": ""}
    own = {"CUDA_VISIBLE_DEVICES": "0", "NCCL_DEBUG_FILE": "/tmp/0", "HF_TOKEN": "secret"}
    first = with_sample(0, environment={**libraries, **own})
    second = with_sample(1, environment={**libraries, "NCCL_IB_DISABLE": "0"})

    assert of_node(first).environment == {**libraries, "NCCL_DEBUG": "empty"}
    mixed = of_node(first, second, with_sample(2, environment=libraries)).environment or {}
    assert mixed["NCCL_IB_DISABLE"] == "mixed: 1 (ranks 0, 2), 0 (rank 1)"
    assert of_node(rank(0)).environment == {}
    assert of_node(rank(0), with_sample(1, port="29501")).environment is None
    many = {f"NCCL_{n}_{'x' * 50}": "v" * 64 for n in range(64)}
    assert of_node(with_sample(0, environment=many)).environment is None


def test_stacks_of_the_ranks_of_a_node_are_merged_also_those_of_two_jobs_of_srun() -> None:
    waiting = [rank(n, stack=ALL_REDUCE, still_s=30.0) for n in range(3)]
    saving = rank(3, stack=SAVE, still_s=30.0)

    assert of_node(*waiting, saving).stacks == (
        "ranks: 3 of 4 in all_reduce; rank 3 in train.py:91 save",
    )
    # srun starts each rank as a root of its own.
    apart = [snapshot([waiting[0]]), snapshot([waiting[1]])]
    assert summary_of(apart).node.stacks == ("ranks: 2 of 2 in all_reduce",)
    apart = [snapshot([waiting[0]]), snapshot([saving])]
    assert summary_of(apart).node.stacks == (
        "ranks: rank 0 in all_reduce; rank 3 in train.py:91 save",
    )
    assert of_node(waiting[0]).stacks == ()


def test_start_methods_are_those_of_processes_that_multiprocessing_started() -> None:
    def started(number: int, role: Role, method: str) -> Process:
        made = rank(number)
        sample = replace(made.sample, environment={}, rank=None, start_method=method)
        return replace(made, sample=sample, role=role, start_method=method)

    spawned, loading = started(1, "spawned", "spawn"), started(2, "loader-worker", "fork")
    facts = summary_of([snapshot([rank(0), spawned, loading])]).node.facts

    assert facts["start method"] == "spawn"
    assert facts["start method of loader workers"] == "fork"


def test_the_sizes_of_shared_memory_of_equal_machines_are_equal() -> None:
    sizes = (1_055_531_003_904, 1_055_550_000_000)
    found = []
    for size in sizes:
        of = snapshot([rank(0)])
        shm = FileSystemSample("/dev/shm", size, size // 2, None, None)
        facts = summary_of([replace(of, host=replace(of.host, shm=shm))]).node.facts
        found.append(facts["/dev/shm"])

    assert found == ["983G", "983G"]


def test_the_shared_memory_of_another_job_of_the_node_is_not_compared() -> None:
    of = snapshot([rank(0)])
    small = replace(of.host, shm=FileSystemSample("/dev/shm", 64 << 20, 0, None, None))
    without = replace(
        rank(1), role="main", sample=replace(rank(1).sample, role="main", rank=None, environment={})
    )
    other = replace(snapshot([without]), host=small)
    apart = replace(snapshot([rank(1)]), host=small)

    assert summary_of([of, other]).node.facts["/dev/shm"] == "64.0G"
    assert "/dev/shm" not in summary_of([of, apart]).node.facts
    assert summary_of([other]).node.facts["/dev/shm"] == "64.0M"


BACKWARD = (
    Frame("_engine_run_backward", "/lib/python3.11/site-packages/torch/autograd/graph.py", 979),
    Frame("train", "/home/ada/train.py", 50),
)


@pytest.mark.parametrize(
    ("stack", "place"), [(ALL_REDUCE, "all_reduce"), (BACKWARD, "the backward pass")]
)
def test_a_rank_of_which_a_thread_waits_for_a_core_once_still_makes_no_progress(
    stack: tuple[Frame, ...], place: str
) -> None:
    rows = Rows()

    def row(at_s: float, **of: Any) -> RankRow:
        made = rank(0, at_s=at_s, stack=stack, **of)
        # The stack was taken when the rank had just stopped.
        taken = replace(made.threads[0], stack_age_s=at_s - 100.0)
        other = Thread(2, "gloo_tcp_loop", "R" if "still_s" not in of else "S")
        made = replace(made, threads=(replace(taken, state="S"), other))
        (found,) = rows.sections([snapshot([made], at_s=at_s)])["ranks"].values()
        return msgspec.convert(found, RankRow)

    stalled = row(130.0, still_s=30.0)
    once, for_long = row(131.0), row(131.0 + HELD_S)

    assert (stalled.place, stalled.quiet_at_s) == (place, 100.0)
    assert (once.place, once.quiet_at_s) == (place, 100.0)
    assert (for_long.place, for_long.quiet_at_s) == (None, None)


def test_a_rank_that_has_left_its_collective_makes_progress_at_once() -> None:
    """Else it would be late by the time that it has waited for the others."""
    rows = Rows()

    def row(at_s: float, **of: Any) -> RankRow:
        (found,) = rows.sections([snapshot([rank(0, at_s=at_s, **of)], at_s=at_s)])[
            "ranks"
        ].values()
        return msgspec.convert(found, RankRow)

    waiting = row(130.0, stack=ALL_REDUCE, still_s=30.0)
    gone_on = row(131.0, stack=SAVE)

    assert (waiting.place, waiting.quiet_at_s) == ("all_reduce", 100.0)
    assert (gone_on.place, gone_on.line, gone_on.quiet_at_s) == (None, "train.py:91 save", None)


def test_a_row_has_for_how_long_its_rank_usually_waits_and_works() -> None:
    made = rank(0)
    habit = RankHabit(
        made.process,
        long_waits=(Length(19.0, 50.0), Length(24.0, 90.0)),
        long_work=(Length(43.0, 50.0), Length(60.0, 90.0)),
    )
    (row,) = summary_of([replace(snapshot([made]), habits={made.process: habit})]).ranks
    (new,) = summary_of(
        [replace(snapshot([made]), habits={made.process: RankHabit(made.process)})]
    ).ranks

    assert (row.usual_wait_s, row.usual_s) == (20, 45)
    assert (new.usual_wait_s, new.usual_s) == (None, None)


def test_a_process_that_two_jobs_have_is_counted_once() -> None:
    both = [snapshot([rank(0), rank(1)]), snapshot([rank(1), rank(0)])]
    summary = summary_of(both)

    assert (summary.node.processes, summary.node.counts) == (2, {"rank": 2})


def test_a_node_without_a_job_says_so() -> None:
    assert summary_of([]).node.state == "no-job"


def task(children: tuple[Role, ...] = (), **environment: str) -> RankRow:
    """The row of a process without RANK."""
    made = rank(3)
    sample = replace(made.sample, rank=None, role="main", environment=environment)
    made = replace(made, sample=sample, role="main")
    below = [
        replace(rank(10 + place), role=each, parent=made.process)
        for place, each in enumerate(children)
    ]
    below = [
        replace(each, sample=replace(each.sample, rank=None, environment={})) for each in below
    ]
    rows = Rows().sections([snapshot([made, *below])])["ranks"]
    return msgspec.convert(rows["1003.50"], RankRow)


STEP = {"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8", "SLURM_JOB_ID": "7"}
PMI = {"PMI_RANK": "1", "PMI_SIZE": "2"}
MPI = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}


@pytest.mark.parametrize(
    ("environment", "children", "place"),
    [
        (STEP, (), (5, 8)),
        (STEP, ("loader-worker",), (5, 8)),
        (MPI, (), (2, 4)),
        (PMI, (), (1, 2)),
        # mp.spawn in each task: the children are the ranks.
        (STEP, ("spawned", "spawned"), (None, None)),
        # The script of a batch job is no task of a step.
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, (), (None, None)),
        # One task is a program of its own.
        ({**STEP, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, (), (None, None)),
        ({**STEP, "SLURM_PROCID": "9"}, (), (None, None)),
    ],
)
def test_a_task_of_slurm_or_mpi_is_a_rank_unless_it_starts_ranks(
    environment: dict[str, str], children: tuple[Role, ...], place: tuple[int | None, int | None]
) -> None:
    row = task(children=children, **environment)

    assert (row.rank, row.world_size) == place


def test_the_program_that_starts_the_ranks_of_its_node_is_of_their_job() -> None:
    """Lightning's first rank on a node: `collect.job.roles` numbers it by those that it starts."""
    first, other = rank(2, stack=SAVE, still_s=30.0), rank(3, stack=ALL_REDUCE, still_s=30.0)
    first = replace(first, sample=replace(first.sample, environment={}), role="main")
    job = {"LOCAL_RANK": "1", "NODE_RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "a"}
    other = replace(other, sample=replace(other.sample, environment=job), parent=first.process)

    rows = Rows().sections([snapshot([first, other])])["ranks"].values()

    assert [row["rank"] for row in rows] == [2, 3]
    assert {(row["world_size"], row["job"]) for row in rows} == {(4, "a:")}


@pytest.mark.parametrize(("role", "labels"), [("spawned", 2), ("main", 2), ("loader-worker", 1)])
def test_a_process_with_the_threads_of_a_process_group_is_a_rank(role: Role, labels: int) -> None:
    # accelerate's notebook_launcher and mp.spawn: no number in the environment.
    waiting, other = rank(0, stack=ALL_REDUCE, still_s=30.0), rank(1, stack=SAVE, still_s=30.0)
    group = Thread(1, "gloo_tcp_loop", "S")
    roles: tuple[tuple[Process, Role], ...] = ((waiting, "spawned"), (other, role))
    made = [
        replace(
            each,
            sample=replace(each.sample, rank=None, environment={}),
            role=of,
            threads=(*each.threads, group),
        )
        for each, of in roles
    ]

    assert len(Rows().sections([snapshot(made)])["ranks"]) == labels
