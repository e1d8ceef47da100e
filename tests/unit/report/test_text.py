"""Reports as plain text."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.collect.hook.discovery import NO_HOOK
from mpwatch.model.host import Check
from mpwatch.model.ids import ProcessId, Role
from mpwatch.model.injection import InjectionPlan, PlannedInjection
from mpwatch.model.samples import Ended, PartOfJob
from mpwatch.model.snapshot import Hook, Snapshot
from mpwatch.model.waits import WaitChain, WaitGraph, WaitLink
from mpwatch.report.table import TextStyle, cell_width
from mpwatch.report.text import diagnose_text, doctor_text, dump_text, plan_text, ps_text
from tests.builders.progress import source as progress_source
from tests.builders.report_job import MAIN, account, finding, job, listed_job, worker


def section(text: str, title: str) -> list[str]:
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(title))
    end = next((i for i in range(start, len(lines)) if not lines[i]), len(lines))
    return lines[start:end]


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_no_line_is_wider_than_the_given_width(width: int) -> None:
    long = replace(finding(), cause="because " * 60, evidence=("x" * 300,))
    snapshot = replace(job(), findings=(long,))

    text = dump_text(snapshot, style=TextStyle(width))

    assert max(map(cell_width, text.splitlines())) <= width


def test_a_dump_starts_with_the_job_and_its_findings() -> None:
    lines = dump_text(job()).splitlines()

    assert lines[0].startswith("train.py  41823   2027-01-15 08:00:00 UTC   python 3.11.7")
    assert "hook ready in 1 of 2" in lines[1]
    assert "events lost 3" in lines[1]
    assert lines[3] == "FINDINGS  1 critical"


def test_a_finding_has_the_labels_of_the_screens() -> None:
    lines = section(diagnose_text(job(), style=TextStyle(100)), "FINDINGS")

    assert lines[1:] == [
        "CRITICAL  fd-exhaustion-receiver  main (41823)",
        "  main reaches its limit of 1024 fds in 38 s",
        "  forecast  38 s",
        "  evidence  - 642 of 1024 fds in use",
        "            - +24 fds a second, one per tensor received",
        "  cause     Every tensor received and kept holds one descriptor of the receiver.",
        "  fix       Stop keeping received tensors: clone() what you keep, at the price of a copy.",
    ]


def test_the_tree_is_indented_and_shows_the_activity_of_each_process() -> None:
    assert section(dump_text(job()), "PROCESSES") == [
        "PROCESSES  2 running, 1 ended",
        "PID               STATE    CPU  PRIVATE    SHM       FDS  MAPS  THR  HOOK",
        "41823 main        waiting   31     1.2G  84.0M  642/1024  1100    7  ready",
        "      waits for batch 417 from worker 0",
        "  41826 worker 0  running    -        -      -         -     -    1  silent",
        "        data.py:31 decode",
        "  41827 worker 1  ended      -        -      -         -     -    1  silent",
        "        ended: signal 9 (SIGKILL)",
    ]


def test_wide_output_shows_the_activity_in_a_column() -> None:
    lines = section(dump_text(job(), style=TextStyle(120)), "PROCESSES")

    assert lines[2].endswith("waits for batch 417 from worker 0")
    assert "1100/65.5k" in lines[2]
    assert len(lines) == 5


def test_the_stack_of_a_forked_child_ends_at_its_bootstrap() -> None:
    stack = "\n".join(section(dump_text(job()), "STACKS"))

    assert "decode" in stack
    assert "_bootstrap" in stack
    assert "_launch" not in stack
    assert "train.py:12" not in stack


def test_equal_stacks_appear_once_with_all_their_threads() -> None:
    crowd = tuple(worker(MAIN._replace(pid=50000 + n), n) for n in range(12))
    snapshot = replace(job(), processes=(job().processes[0], *crowd))

    text = dump_text(snapshot)

    assert "12 threads: worker 0 (50000) MainThread, worker 1 (50001) MainThread" in text
    assert "and 6 more" in text.replace("\n    ", " ")
    assert text.count("/home/ada/data.py:31") == 1


def test_without_stacks_there_is_no_such_section() -> None:
    assert "STACKS" not in dump_text(job(), with_stacks=False)


def test_segments_with_the_same_creator_and_mappers_are_one_row() -> None:
    one = job().segments[0]
    more = tuple(replace(one, segment=one.segment._replace(inode=n)) for n in range(200))
    lines = section(dump_text(replace(job(), segments=more)), "SHARED MEMORY")

    assert lines[0] == "SHARED MEMORY  200 segments"
    assert lines[2].split() == [
        *("worker", "0", "(41826)", "torch", "200", "200M", "200M", "4.0", "s", "main,"),
        *("worker", "0"),
    ]


def test_a_finding_names_the_cause_it_is_an_effect_of() -> None:
    effect = replace(finding(), effect_of="lost-batch")

    text = diagnose_text(replace(job(), findings=(effect,)), style=TextStyle(100))

    assert section(text, "FINDINGS")[-1] == "  effect of lost-batch"


def test_a_common_cause_and_fix_of_two_findings_appear_once() -> None:
    other = replace(finding(), process=None, summary="the same holds for the whole job")

    text = diagnose_text(replace(job(), findings=(finding(), other)))

    assert text.count(finding().advice[:20]) == text.count(finding().cause[:20]) == 1
    assert "  cause and fix: as above, see main (41823)" in text
    assert other.summary in text


def test_resolved_findings_have_their_own_section() -> None:
    gone = replace(finding(), resolved_s=499.0)
    text = diagnose_text(replace(job(), findings=(gone,)))

    assert "No findings. Seen so far:" in text
    assert "main waits for batch 417 for 84 s" in text
    assert section(text, "RESOLVED")[1].startswith("  critical  fd-exhaustion-receiver  main")
    assert gone.rule not in dump_text(replace(job(), findings=(gone,)))


def test_a_wait_chain_starts_at_the_waiting_process() -> None:
    assert section(diagnose_text(job()), "WAITS")[1:] == [
        "  main waits for batch 417  for 84 s",
        "  <- worker 0 owns it and waits for a lock  for 84 s",
        "  dead end: Nobody will release this lock.",
    ]


def test_a_wait_that_was_there_at_the_first_reading_has_lasted_at_least_that_long() -> None:
    link = WaitLink(MAIN, 41823, "main", "waits for batch 417", 29.4)
    long = WaitChain((link,), "dead-end", "Nothing will arrive.")
    short = replace(long, links=(replace(link, since_s=20.0),))

    def told(chain: WaitChain) -> str:
        snapshot = replace(job(), waits=WaitGraph((), (chain,)), account=account())
        return section(diagnose_text(snapshot), "WAITS")[1]

    assert told(long) == "  main waits for batch 417  for at least 29 s"  # watched for 30 s
    assert told(short) == "  main waits for batch 417  for 20 s"


def test_a_problem_of_many_processes_appears_once() -> None:
    blind = tuple(
        replace(worker(MAIN._replace(pid=60000 + n), n), problems=("fds: Permission denied",))
        for n in range(7)
    )
    snapshot = replace(job(), processes=blind)

    text = dump_text(snapshot)

    assert text.count("fds: Permission denied") == 1
    assert "(worker 0, worker 1, worker 2, worker 3 and 3 more)" in text.replace("\n    ", " ")


def test_colour_adds_no_information() -> None:
    plain, coloured = dump_text(job()), dump_text(job(), style=TextStyle(80, has_colour=True))

    assert "\x1b[31;1mCRITICAL\x1b[0m" in coloured
    assert "\x1b" not in plain


def test_a_job_without_its_root_process_is_reported() -> None:
    host = job().host
    snapshot = Snapshot(at_s=1.0, wall_s=1.0, root=MAIN, host=host, processes=())

    assert dump_text(snapshot).startswith("job  41823   1970-01-01 00:00:01 UTC")


def test_that_this_is_a_part_of_a_job_is_said_once() -> None:
    part = replace(job(), part_of=PartOfJob(ProcessId(7, 70), "train.py", "rank 2"))
    words = "41823 is rank 2 of the job of 7 (train.py): mpwatch diagnose 7"

    assert diagnose_text(part).count(words) == dump_text(part).count(words) == 1
    assert words not in diagnose_text(part, is_part_told=True)


def test_a_process_of_multiprocessing_has_its_label_in_the_title() -> None:
    code = "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=6)"
    root = worker(MAIN, 3)
    root = replace(
        root,
        label="service.worker_main",
        sample=replace(root.sample, cmdline=("python", "-c", code, "--multiprocessing-fork")),
    )

    assert dump_text(replace(job(), processes=(root,))).startswith("service.worker_main  41823  ")


def test_a_check_shows_state_value_meaning_and_fix() -> None:
    checks = (
        Check("open files", "warning", "1024 soft, 524288 hard", "A long story.", "ulimit -n"),
        Check("/dev/shm", "ok", "24.0G, 3% used", "There is room."),
    )

    assert doctor_text(checks).splitlines() == [
        "warning  open files         1024 soft, 524288 hard",
        "                            A long story.",
        "                            fix: ulimit -n",
        "ok       /dev/shm           24.0G, 3% used",
        "                            There is room.",
        "",
        "1 warning",
    ]


def test_notes_are_counted_and_only_without_any_have_all_checks_passed() -> None:
    ok = Check("TMPDIR", "ok", "4 characters", "Sockets fit.")
    note = Check("GPU", "note", "none", "Jobs on the CPU need none.")

    assert doctor_text([ok]).splitlines()[-1] == "all checks passed"
    assert doctor_text([ok, note, note]).splitlines()[-1] == "2 notes"


def test_a_listing_shows_roots_roles_and_hooks() -> None:
    assert ps_text([listed_job()]).splitlines() == [
        "  PID   ROOT  ROLE      STATE      RSS  TORCH  HOOK  COMMAND",
        "41823  41823  main      sleeping  2.0G  yes    yes   python train.py",
        "41826  41823  worker 3  sleeping  2.0G  yes    -     python train.py",
    ]


def test_a_listing_without_jobs_is_one_sentence() -> None:
    assert ps_text([]) == "No torch job and no process with the hook is running."


def test_many_equal_workers_are_one_row_of_a_listing() -> None:
    one = listed_job()
    crowd = tuple(replace(one.processes[1], process=MAIN._replace(pid=n)) for n in range(64))

    lines = ps_text([replace(one, processes=(one.root, *crowd))]).splitlines()

    assert len(lines) == 3
    assert "loader-worker and 63 more" in lines[2]


def test_blocked_chains_come_first_and_chains_with_progress_are_counted() -> None:
    snapshot = job()
    stuck = snapshot.waits.chains[0]
    moving = replace(stuck, verdict="progress", conclusion="It wakes up by itself.")
    others = [
        replace(
            moving, links=(*moving.links[:-1], replace(moving.links[-1], tid=tid, words=f"{tid}"))
        )
        for tid in range(10)
    ]
    waits = replace(snapshot.waits, chains=(*others, stuck))

    text = "\n".join(section(diagnose_text(replace(snapshot, waits=waits)), "WAITS"))
    whole = diagnose_text(replace(snapshot, waits=waits))

    assert "dead end" in text
    assert whole.count("It wakes up by itself.") == 4
    assert "and 6 more that make progress" in whole


def test_processes_with_the_same_wait_share_one_chain() -> None:
    snapshot = job()
    chain = snapshot.waits.chains[0]
    first, *rest = chain.links
    chains = [replace(chain, links=(replace(first, name=f"rank {n}"), *rest)) for n in range(3)]
    waits = replace(snapshot.waits, chains=tuple(chains))

    lines = section(diagnose_text(replace(snapshot, waits=waits)), "WAITS")[1:]

    assert lines[:2] == ["  rank 0 waits for batch 417  for 84 s", "    the same: rank 1, rank 2"]
    assert len(lines) == 4


def test_chains_with_different_starts_show_each_start() -> None:
    snapshot = job()
    chain = snapshot.waits.chains[0]
    first, *rest = chain.links
    starts = [
        replace(first, name="main", words="waits for the end of its ranks"),
        *(replace(first, name=f"rank {n}") for n in range(2)),
        *(replace(first, name=f"rank {n}", words=f"waits for pipe {n}") for n in range(2, 6)),
    ]
    chains = [replace(chain, links=(start, *rest)) for start in starts]
    waits = replace(snapshot.waits, chains=tuple(chains))

    lines = section(diagnose_text(replace(snapshot, waits=waits)), "WAITS")[1:]

    assert lines[:5] == [
        "  main waits for the end of its ranks  for 84 s",
        "  rank 0 waits for batch 417  for 84 s",
        "    the same: rank 1",
        "  rank 2 waits for pipe 2  for 84 s",
        "  and 3 more wait",
    ]


def test_a_short_wait_with_progress_is_not_shown() -> None:
    snapshot = job()
    chain = snapshot.waits.chains[0]
    young = tuple(replace(link, since_s=0.005) for link in chain.links)
    moving = replace(chain, links=young, verdict="progress")
    waits = replace(snapshot.waits, chains=(moving,))

    assert "WAITS" not in diagnose_text(replace(snapshot, waits=waits))


def test_a_pending_hook_is_shown_with_its_reason() -> None:
    snapshot = job()
    pending = Hook("pending", "its main thread is blocked in read(3)")
    processes = tuple(replace(process, hook=pending) for process in snapshot.processes)

    text = diagnose_text(replace(snapshot, processes=processes))

    assert "hook pending in 2 of 2" in text
    assert "hook pending: its main thread is blocked in read(3)" in text


def test_why_a_process_has_no_hook_is_shown_where_there_is_a_reason() -> None:
    snapshot = job()
    first, second, *others = (
        replace(process, sample=replace(process.sample, is_python=True))
        for process in snapshot.processes
    )
    reason = "it is sandboxed: a system-call filter"
    left_out = replace(first, hook=Hook("absent", reason))
    helper = replace(second, hook=Hook("absent", "it is left alone"), role="resource-tracker")

    text = diagnose_text(replace(snapshot, processes=(left_out, helper, *others)))

    assert f"no hook: {reason}" in text
    assert "left alone" not in text
    shell = replace(left_out, sample=replace(first.sample, is_python=False))
    assert "no hook:" not in diagnose_text(replace(snapshot, processes=(shell, second)))
    without = replace(first, hook=Hook("absent", NO_HOOK))
    assert "no hook:" not in diagnose_text(replace(snapshot, processes=(without, second)))


def test_an_ended_job_shows_how_many_processes_had_the_hook() -> None:
    snapshot = job()
    gone = tuple(
        replace(process, ended=Ended(process.process, 499.0, 0)) for process in snapshot.processes
    )

    assert "hook was attached in 1 of 3" in dump_text(replace(snapshot, processes=gone))
    silent = Hook("gone", python="3.11.7")  # it has said hello, and recorded nothing
    main, worker, *others = gone
    more = (main, replace(worker, hook=silent), *others)
    helper = replace(worker, process=ProcessId(9, 9), role="resource-tracker", hook=Hook())
    assert "hook was attached in 2 of 3" in dump_text(replace(snapshot, processes=(*more, helper)))
    assert "no hook" in dump_text(replace(snapshot, processes=snapshot.processes[1:]))


def test_a_diagnosis_ends_with_what_the_job_is_doing() -> None:
    snapshot = replace(job(), account=account(), findings=())

    text = diagnose_text(snapshot, style=TextStyle(width=100))

    assert "No findings" in text
    assert text.split("\n\n")[-1] == (
        "WHAT THE JOB IS DOING\n"
        "  main: 100% waiting for batches from worker 0\n"
        "  The hook has seen no batch, collective, queue call or received tensor yet.\n"
        "  Watched for 30 s, 60 readings. CPU time is exact; a share of waiting may be off by 13 "
        "percentage\n"
        "  points."
    )


def test_beside_the_account_is_the_progress() -> None:
    batches = progress_source(12.0, 100, 3.0, 50, begin_s=350.0, process=MAIN)
    snapshot = replace(job(), account=account(), progress=(batches,))

    text = diagnose_text(snapshot)

    assert (
        "  Progress: batches 3.0/s for 50 s, 12/s before that, 9.0/s over 2 min.\n  Watched" in text
    )


def test_a_diagnosis_without_an_account_says_so() -> None:
    assert diagnose_text(job()).endswith(
        "No process was observed, so there is no account of its time."
    )


def test_the_account_of_a_job_that_has_ended_is_of_the_time_before() -> None:
    ended = Ended(MAIN, 1.0, exit_code=1)
    snapshot = replace(job(), account=account())
    processes = tuple(replace(each, ended=ended) for each in snapshot.processes)

    text = diagnose_text(replace(snapshot, processes=processes))

    assert "WHAT THE JOB DID BEFORE IT ENDED" in text


def planned(number: int, role: Role = "spawned", reason: str = "") -> PlannedInjection:
    process = ProcessId(number, 5000 + number)
    writes = () if reason else (f"directory attach-{number}-{5000 + number} in /tmp/mpwatch-0",)
    method = "" if reason else "pending call"
    return PlannedInjection(process, "python", role, method, reason, writes=writes)


def test_processes_of_a_plan_of_which_the_same_is_said_are_one_entry() -> None:
    workers = [planned(number) for number in range(300, 340)]
    refused = [planned(number, reason="it is sandboxed") for number in (400, 401)]
    plan = InjectionPlan((planned(299, "main"), *workers, *refused), ())

    text = plan_text(plan)

    assert text.count("directory attach-") == 2
    assert "directory attach-300-5300" in text
    assert "the same, under names of their own, for 39 more: 301, 302, " in text
    assert "339" in text
    assert [text.count(f"{pid}      spawned: left out: it is sandboxed") for pid in (400, 401)] == [
        1,
        1,
    ]
