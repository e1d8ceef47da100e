"""Recordings of several nodes: written, cut, damaged, replayed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from mpwatch.nodes.head.node import NodeView
from mpwatch.nodes.recording import (
    KEY_S,
    JobPlayer,
    JobRecording,
    JobRecordingWriter,
    problems_of,
    replayed_to_end,
)
from mpwatch.nodes.report import job_json, job_text
from mpwatch.nodes.wire.messages import Answer, Hello, Summary
from mpwatch.nodes.wire.summary import NodeRow, NodeSummary, RankRow, SummaryReader, row_of
from mpwatch.observe.recording.file import (
    NotARecording,
    Recording,
    RecordingWriter,
    is_of_several_nodes,
)
from mpwatch.report.table import PLAIN
from tests.builders.clock import Clock

GOLDEN = Path(__file__).parents[2] / "data" / "job-recording-schema-1.mpw"


class Job:
    """Two made-up nodes of one rank each, as a head knows them."""

    def __init__(self, path: Path, limit_bytes: int = 1 << 30) -> None:
        self.clock = Clock()
        self.readers = {"a": SummaryReader(), "b": SummaryReader()}
        self.heard_s: dict[str, float] = {}
        self.sequence = 0
        self.states = {"a": "live", "b": "live"}
        self.writer = JobRecordingWriter(
            str(path),
            "ssh:a,b",
            clock=self.clock,
            wall_clock=lambda: 1.8e9,
            limit_bytes=limit_bytes,
        )

    def views(self) -> tuple[NodeView, ...]:
        return tuple(
            NodeView(
                name,
                state,  # type: ignore[arg-type]
                self.clock() - self.heard_s[name] if name in self.heard_s else None,
                problem="ssh ended with status 255." if state == "ended" else "",
                host=f"machine-{name}",
                version="0.1",
                clock_offset_s=0.25,
                clock_error_s=0.001,
            )
            for name, state in self.states.items()
        )

    def tell(self, name: str, message: Hello | Summary | Answer) -> None:
        self.heard_s[name] = self.clock()
        if isinstance(message, Summary):
            assert self.readers[name].apply(message)
        self.writer.message(name, message)

    def second(self, *silent: str) -> None:
        """One second in which each node, but for the silent ones, says what its rank does."""
        for rank, name in enumerate(("a", "b")):
            if name not in silent:
                row = row_of(RankRow(pid=7, label="r", rank=rank, doing=f"step {self.sequence}"))
                fields = row if self.sequence == 0 else {"doing": f"step {self.sequence}"}
                node = {"": row_of(NodeRow(state="watching", processes=1))}
                first = self.sequence == 0
                self.tell(
                    name,
                    Summary(
                        self.sequence,
                        self.clock(),
                        is_full=first,
                        changed={"ranks": {"7.1": fields}, **({"node": node} if first else {})},
                    ),
                )
        self.sequence += 1
        self.writer.states(
            self.views(),
            lambda: ((n, full) for n, r in self.readers.items() if (full := r.full()) is not None),
        )
        self.clock.now_s += 1.0


def recorded(path: Path, seconds: int) -> Job:
    job = Job(path)
    job.writer.states(job.views(), tuple)
    for name in ("a", "b"):
        job.tell(name, Hello("0.1", f"machine-{name}", 12))
    for _ in range(seconds):
        job.second()
    job.writer.close()
    assert job.writer.problem is None
    return job


def summary(player: JobPlayer, place: int) -> NodeSummary:
    found = player.views()[place].summary
    assert found is not None
    return found


def doing(player: JobPlayer) -> list[str]:
    return [summary(player, place).ranks[0].doing for place in range(len(player.views()))]


def test_what_the_nodes_have_sent_is_replayed_as_one_job(tmp_path: Path) -> None:
    path = tmp_path / "job.mpw"
    recorded(path, 10)

    recording, player, *_ = replayed_to_end(str(path))

    assert recording.header.spec == "ssh:a,b"
    assert [view.name for view in player.views()] == ["a", "b"]
    assert doing(player) == ["step 9", "step 9"]
    first = player.views()[0]
    assert (first.state, first.host, first.version) == ("live", "machine-a", "0.1")
    assert (first.clock_offset_s, first.clock_error_s) == (0.25, 0.001)
    assert player.at_s == player.length_s == 9.0
    assert problems_of(recording, player) == []


def test_each_moment_can_be_shown_again(tmp_path: Path) -> None:
    path = tmp_path / "job.mpw"
    recorded(path, int(2.5 * KEY_S))

    with JobRecording(str(path)) as recording:
        player = JobPlayer(recording)
        places = (3.5, 2 * KEY_S + 5.5, KEY_S + 2.5, 0.5)
        shown = []
        for place in places:
            player.seek(place)
            shown.append((player.at_s, *doing(player)))

    assert shown == [(place, *[f"step {int(place)}"] * 2) for place in places]
    assert sum(member.is_key for member in recording.members) == 2


def test_a_node_that_is_silent_is_shown_with_its_time_also_after_a_whole_state(
    tmp_path: Path,
) -> None:
    path = tmp_path / "job.mpw"
    job = Job(path)
    job.second()
    for _ in range(int(KEY_S) + 20):
        job.second("b")
    job.writer.close()

    with JobRecording(str(path)) as recording:
        player = JobPlayer(recording)
        player.seek(KEY_S + 10.0)
        live, silent = player.views()

    assert live.state == "live"
    assert (silent.state, silent.last_seen_s) == ("silent", KEY_S + 10.0)
    assert summary(player, 1).ranks[0].doing == "step 0"


def test_an_agent_that_ends_and_one_that_is_started_again(tmp_path: Path) -> None:
    path = tmp_path / "job.mpw"
    job = Job(path)
    job.second()
    job.states["b"] = "ended"
    job.second("b")
    job.states["b"] = "live"
    job.clock.now_s += 5.0
    job.tell("b", Hello("0.1", "machine-b", 99))
    job.tell(
        "b",
        Summary(0, 1.0, True, {"ranks": {"9.1": row_of(RankRow(pid=9, label="r", doing="again"))}}),
    )
    job.writer.states(job.views(), tuple)
    job.writer.close()

    with JobRecording(str(path)) as recording:
        player = JobPlayer(recording)
        player.seek(1.5)
        ended = player.views()[1]
        player.seek(100.0)

    assert (ended.state, ended.problem) == ("ended", "ssh ended with status 255.")
    assert player.views()[1].state == "live"
    assert doing(player) == ["step 1", "again"]


def test_a_finding_that_no_longer_holds_at_the_end_is_told_last(tmp_path: Path) -> None:
    path = tmp_path / "job.mpw"
    job = Job(path)
    places = {"a": {"place": "all_reduce"}, "b": {"line": "save.py:9 save"}}
    numbers = {"a": 0, "b": 1}
    for second in range(60):
        is_stuck = second < 50
        for name, place in places.items():
            row = RankRow(7, "r", numbers[name], 2, "10.0.0.1:1", has_stack=True)
            fields = {**row_of(row), **(place if is_stuck else {})}
            fields |= {"quiet_at_s": 0.0} if is_stuck else {}
            node = row_of(NodeRow(state="watching", processes=1))
            changed = {"ranks": {"7.1": fields}, "node": {"": node}}
            job.tell(name, Summary(second, job.clock(), is_full=True, changed=changed))
        job.writer.states(job.views(), tuple)
        job.clock.now_s += 1.0
    job.writer.close()

    _, player, views, findings = replayed_to_end(str(path))

    (found,) = findings
    assert (found.rule, found.rank, found.node) == ("rank-stuck-in-collective", 1, "b")
    assert found.resolved_s is not None
    assert 40.0 < found.resolved_s < 60.0
    text = job_text(views, findings, style=PLAIN)
    assert text.startswith("No findings about the job as a whole.\n\nRESOLVED")
    assert "for rank 1 on b, which has made no progress" in " ".join(text.split())
    (said,) = job_json(views, {}, findings, wall_s=0.0, problems={}, at_s=player.at_s)["findings"]
    assert (said["resolved"], said["resolved_s"]) == (True, player.at_s - found.resolved_s)


def test_the_documents_of_the_nodes_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "job.mpw"
    job = Job(path)
    job.second()
    job.tell("a", Answer(1, {"findings": [{"rule": "x"}]}))
    job.writer.close()

    _, player, *_ = replayed_to_end(str(path))

    assert player.documents() == {"a": {"findings": [{"rule": "x"}]}}


def test_a_recording_cut_anywhere_is_replayed_as_far_as_it_goes(tmp_path: Path) -> None:
    path, cut = tmp_path / "job.mpw", tmp_path / "cut.mpw"
    recorded(path, int(KEY_S) + 5)
    data = path.read_bytes()
    with JobRecording(str(path)) as recording:
        header_ends = recording.members[1].offset
    last = -1.0
    for length in range(header_ends, len(data), 311):
        cut.write_bytes(data[:length])
        reading, player, *_ = replayed_to_end(str(cut))
        is_between_members = not problems_of(reading, player)
        assert is_between_members or "is cut off at its end" in problems_of(reading, player)[0]
        assert player.at_s >= last - 1.0
        last = player.at_s
        for view in player.views():
            assert view.summary is None or view.summary.ranks[0].doing.startswith("step ")
    assert last >= KEY_S
    for length in range(header_ends):
        cut.write_bytes(data[:length])
        try:
            _, player, *_ = replayed_to_end(str(cut))
        except NotARecording:
            continue
        assert player.views() == ()


def test_after_damage_the_state_is_right_from_the_next_whole_state_on(tmp_path: Path) -> None:
    path = tmp_path / "job.mpw"
    recorded(path, int(KEY_S) + 5)
    data = bytearray(path.read_bytes())
    with JobRecording(str(path)) as recording:
        place = recording.members[5].offset + 60
    data[place : place + 8] = b"\xff" * 8
    path.write_bytes(data)

    reading, player, *_ = replayed_to_end(str(path))

    assert "is damaged" in problems_of(reading, player)[0]
    assert doing(player) == [f"step {int(KEY_S) + 4}"] * 2


def test_hostile_lines_are_refused_and_their_text_is_sanitized(tmp_path: Path) -> None:
    path = tmp_path / "job.mpw"
    job = Job(path)
    job.tell("a", Hello("0.1\x1b[2J", "evil\n\x1b]0;x\x07", 1))
    job.states["a"] = "no such state"
    job.second()
    job.writer.close()

    reading, player, *_ = replayed_to_end(str(path))

    assert [(view.name, view.host) for view in player.views()] == [
        ("a", "evil "),
        ("b", "machine-b"),
    ]
    assert "1 lines of" in problems_of(reading, player)[0]


def test_a_recording_that_is_long_enough_takes_no_more_and_says_so(tmp_path: Path) -> None:
    job = Job(tmp_path / "job.mpw", limit_bytes=2000)
    for _ in range(60):
        job.second()
    job.writer.close()

    assert job.writer.is_long_enough
    assert "2000 bytes" in (job.writer.problem or "")
    assert (tmp_path / "job.mpw").stat().st_size < 4000


def test_the_two_kinds_of_recordings_are_distinguished(tmp_path: Path) -> None:
    one, several = tmp_path / "one.mpw", tmp_path / "several.mpw"
    RecordingWriter(str(one), None).close()
    recorded(several, 1)

    assert [is_of_several_nodes(str(path)) for path in (one, several)] == [False, True]
    with pytest.raises(NotARecording, match="of a job on several machines, which"):
        Recording(str(several))
    with pytest.raises(NotARecording, match="not a recording of a job on several machines"):
        JobRecording(str(one))


def test_a_recording_of_schema_1_is_read(tmp_path: Path) -> None:
    reading, player, *_ = replayed_to_end(str(GOLDEN))

    assert problems_of(reading, player) == []
    assert reading.header.spec == "ssh:a,b"
    assert doing(player) == ["step 64", "step 64"]
    assert player.documents() == {"a": {"findings": []}}
    kinds = [json.loads(line)["k"] for line in gzip.decompress(GOLDEN.read_bytes()).splitlines()]
    assert kinds[0] == "job"
    assert set(kinds) == {"job", "node", "message"}


if __name__ == "__main__":  # writes the golden file anew, after a change of the format on purpose
    GOLDEN.unlink(missing_ok=True)
    made = Job(GOLDEN)
    made.writer.states(made.views(), tuple)
    for node in ("a", "b"):
        made.tell(node, Hello("0.1", f"machine-{node}", 12))
    for _ in range(int(KEY_S) + 5):
        made.second()
    made.tell("a", Answer(1, {"findings": []}))
    made.writer.close()
