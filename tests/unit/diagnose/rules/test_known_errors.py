from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.describe.error_messages import KNOWN_ERRORS, OWN_KINDS, REASONS, tags_of
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.engine import RULES
from mpwatch.diagnose.known_errors import (
    EXPLAINED,
    contains,
    evidence_of,
    explained,
    gives,
    number_of,
    with_explanation,
)
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Hook, LogEntry
from mpwatch.model.source_code import Mark, Statement
from tests.builders.snapshots import (
    NO_HISTORY,
    exited,
    found,
    log,
    main,
    only,
    pid,
    process,
    snapshot_of,
)

CHECKS = {rule.id: rule.check for rule in RULES}
FRAMES = [["_serve", "/usr/lib/python3.11/multiprocessing/resource_sharer.py", 145]]


def frames(function: str, file: str) -> list[list[object]]:
    return [[function, f"/usr/lib/python3.11/{file}", 1]]


HEARD: tuple[tuple[str, LogEntry], ...] = (
    (
        "batch-of-different-shapes",
        log(
            "exception",
            100,
            "RuntimeError: Trying to resize storage that is not resizable",
            frames=frames("collate_tensor_fn", "torch/utils/data/_utils/collate.py"),
        ),
    ),
    ("shm-manager-failure", log("exception", 100, 'error executing torch_shm_manager at "x"')),
    ("raw-fork-inherits-sharer", log("thread-died", 100, "KeyError: 2", frames=FRAMES)),
    (
        "sharedcache-race",
        log(
            "exception",
            100,
            "RuntimeError: dictionary changed size during iteration",
            frames=frames("free_dead_references", "torch/multiprocessing/reductions.py"),
        ),
    ),
    (
        "spawn-temporary-tensor-fd",
        log("exception", 100, "unable to resize file <filename not specified> to the right size"),
    ),
    ("forkserver-too-many-fds", log("exception", 100, "ValueError: too many fds")),
    ("fds-to-keep-duplicate", log("exception", 100, "ValueError: bad value(s) in fds_to_keep")),
    (
        "main-not-importable",
        log("exception", 100, "Can't get attribute 'f' on <module '__main__' (built-in)>"),
    ),
    ("context-already-set", log("exception", 100, "RuntimeError: context has already been set")),
    (
        "semlock-cross-context",
        log("exception", 100, "A SemLock created in a fork context is being shared"),
    ),
    (
        "nested-daemonic",
        log("exception", 100, "daemonic processes are not allowed to have children"),
    ),
    (
        "spawn-join-false-lost-semaphores",
        log(
            "exception",
            100,
            "FileNotFoundError: [Errno 2]",
            frames=frames("_rebuild", "multiprocessing/synchronize.py"),
        ),
    ),
    (
        "cuda-in-forked-child",
        log("exception", 100, "Cannot re-initialize CUDA in forked subprocess. To use"),
    ),
    (
        "cuda-ipc-producer-exit",
        log(
            "warning",
            100,
            "Producer process has been terminated before all shared CUDA tensors released",
        ),
    ),
    ("cuda-ipc-producer-exit", log("cuda-lent", 100, "8 CUDA tensors of it are in use")),
    (
        "cuda-ipc-allocator-mismatch",
        log("exception", 100, "cudaMallocAsync does not yet support shareIpcHandle. If you"),
    ),
    (
        "cuda-ipc-limbo",
        log("warning", 100, "Producer process tried to deallocate over 1000 memory blocks"),
    ),
    ("cuda-ipc-allocator-mismatch", log("exception", 100, "pidfd_getfd: Bad file descriptor")),
    ("store-port-in-use", log("exception", 100, "failed to listen on any local network address")),
    (
        "nccl-shm-enospc",
        log("warning", 100, "Error while creating shared memory segment /dev/shm/nccl-a (size"),
    ),
    ("inherited-iterator-del", log("foreign-shutdown", 100, "foreign shutdown", owner=99)),
    (
        "iterable-duplicates",
        log("warning", 100, "Length of IterableDataset x was 6, but 7 samples have been fetched"),
    ),
    ("hogwild-not-shared", log("parameters-not-shared", 100, "fc.weight")),
    ("queue-aliasing-inplace-write", log("written-after-put", 100, "tensor")),
    ("share-memory-dangling-numpy", log("dangling-view", 100, "array")),
    (
        "spawn-unpicklable-object",
        log("exception", 100, "AttributeError: Can't pickle local object 'f.<locals>.<lambda>'"),
    ),
    (
        "no-main-guard",
        log("exception", 100, "before the current process has finished its bootstrapping phase"),
    ),
    (
        "sigchld-raises-anywhere",
        log(
            "exception",
            100,
            "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.",
            frames=frames("handler", "torch/utils/data/_utils/signal_handling.py"),
        ),
    ),
    ("pin-memory-thread-death", log("exception", 100, "Pin memory thread exited unexpectedly")),
    (
        "producer-exits-before-get",
        log("receive-failed", 100, "FileNotFoundError", address="/tmp/x"),
    ),
    ("tmpdir-socket-path-too-long", log("lost-item", 100, "OSError: AF_UNIX path too long")),
    ("feeder-thread-drops-batch", log("lost-item", 100, "OSError: [Errno 24]", task=417)),
    (
        "semlock-enospc",
        log(
            "exception",
            100,
            "OSError: [Errno 28] No space left on device",
            frames=frames("__init__", "multiprocessing/synchronize.py"),
        ),
    ),
    ("pids-limit", log("exception", 100, "RuntimeError: can't start new thread")),
    ("torchrun-sighup", log("exception", 100, "SignalException: Process 7 got signal: 1")),
    (
        "batch-of-different-shapes",
        log("exception", 100, "each element in list of batch should be of equal size"),
    ),
    (
        "batch-of-unknown-type",
        log(
            "exception",
            100,
            "TypeError: default_collate: batch must contain tensors, numpy arrays, numbers, dicts "
            "or lists; found <class 'NoneType'>",
        ),
    ),
)


@pytest.mark.parametrize(("rule", "entry"), HEARD, ids=[rule for rule, _ in HEARD])
def test_each_known_error_is_named(rule: str, entry: LogEntry) -> None:
    finding = only(CHECKS[rule], snapshot_of(main(), log=(entry,)))

    assert finding.rule == rule
    assert finding.process == pid(100)
    assert finding.evidence
    assert finding.cause
    assert finding.advice


@pytest.mark.parametrize("rule", sorted(CHECKS))
def test_an_ordinary_log_has_no_finding(rule: str) -> None:
    entries = (
        log("started", 100, "worker 0 200 was started"),
        log("ended", 100, "main ended: too many fds"),
        log("exception", 100, "StopIteration"),
        log("fork", 100, "fork"),
    )

    assert found(CHECKS[rule], snapshot_of(main(), process(200), log=entries)) == []


def test_an_error_of_an_unknown_process_is_still_reported() -> None:
    entry = log("exception", 999, "ValueError: too many fds")

    finding = only(CHECKS["forkserver-too-many-fds"], snapshot_of(main(), log=(entry,)))

    assert finding.summary.startswith("a process of the job cannot start")


@pytest.mark.parametrize(
    "rule",
    [
        "semlock-enospc",
        "producer-exits-before-get",
        "feeder-thread-drops-batch",
        "spawn-unpicklable-object",
        "sigchld-raises-anywhere",
        "pin-memory-thread-death",
        "pids-limit",
    ],
)
def test_rules_of_their_own_making_name_an_unknown_process_as_such(rule: str) -> None:
    entry = dict(HEARD)[rule]

    finding = only(CHECKS[rule], snapshot_of(main(), log=(replace(entry, process=pid(999)),)))

    assert "a process of the job" in finding.summary


def test_of_a_job_that_has_ended_no_threads_are_counted() -> None:
    entry = dict(HEARD)["pids-limit"]
    over = main(ended=exited(100, exit_code=1))

    assert "0 threads" not in " ".join(
        only(CHECKS["pids-limit"], snapshot_of(over, log=(entry,))).evidence
    )
    assert "threads in 1 process" in " ".join(
        only(CHECKS["pids-limit"], snapshot_of(main(), log=(entry,))).evidence
    )


GIVEN: tuple[tuple[str, str], ...] = (
    ("cannot-pickle", "TypeError: cannot pickle 'generator' object"),
    ("file-cut-short", "ValueError: mmap length is greater than file size"),
    ("file-cut-short", "EOFError: Ran out of input"),
    ("file-cut-short", "UnpicklingError: pickle data was truncated"),
    ("file-cut-short", "EOFError: Compressed file ended before the end-of-stream marker was read"),
    ("file-cut-short", "BadZipFile: File is not a zip file"),
    (
        "file-cut-short",
        "RuntimeError: PytorchStreamReader failed reading zip archive: "
        "failed finding central directory",
    ),
    ("file-cut-short", "OSError: image file is truncated (12 bytes not processed)"),
    ("file-cut-short", "OSError: Unable to synchronously open file (truncated file: eof = 96)"),
    ("name-not-found", "AttributeError: Can't get attribute 'f' on <module '__main__'>"),
    ("no-descriptor-left", "OSError: [Errno 24] Too many open files"),
    ("no-space-left", "OSError: [Errno 28] No space left on device"),
    ("not-permitted", "PermissionError: [Errno 13] Permission denied"),
    ("peer-lost", "RuntimeError: [pair.cc:534] Connection closed by peer [127.0.0.1]:4401"),
    ("peer-lost", "RuntimeError: [pair.cc:534] Read error: Connection reset by peer"),
    ("read-only", "OSError: [Errno 30] Read-only file system"),
    ("refused", "ConnectionRefusedError: [Errno 111] Connection refused"),
    ("socket-path-too-long", "OSError: AF_UNIX path too long"),
    (
        "starts-while-importing",
        "RuntimeError: An attempt has been made to start a new process before the current process "
        "has finished its bootstrapping phase.",
    ),
    ("timed-out", "DistBackendError: Watchdog caught collective operation timeout"),
    ("timed-out", "RuntimeError: Timeout after 1800000ms"),
    ("timed-out", "RuntimeError: NCCL_TIMEOUT"),
    ("too-many-descriptors", "ValueError: too many fds"),
)


@pytest.mark.parametrize(("reason", "words"), GIVEN, ids=[words for _, words in GIVEN])
def test_an_error_gives_its_reason(reason: str, words: str) -> None:
    assert gives(log("exception", 100, words), reason)


def test_an_ordinary_error_gives_no_reason() -> None:
    entry = log("exception", 100, "ValueError: Expected input batch_size (4) to match target (5)")

    assert not any(gives(entry, each) for each in REASONS)


def test_each_message_of_a_reason_has_an_example() -> None:
    for reason, messages in REASONS.items():
        examples = [words for each, words in GIVEN if each == reason]
        for message in messages:
            assert any(all(text in words for text in message.texts) for words in examples)


def test_several_errors_of_one_process_are_one_finding() -> None:
    twice = (log("exception", 100, "too many fds"), log("exception", 100, "too many fds again"))

    assert len(found(CHECKS["forkserver-too-many-fds"], snapshot_of(main(), log=twice))) == 1


def test_entries_of_the_observer_are_no_errors() -> None:
    assert tags_of("exception", "too many fds", {})
    assert [tags_of(kind, "too many fds", {}) for kind in OWN_KINDS] == [()] * len(OWN_KINDS)


def test_texts_are_found_deep_inside_details() -> None:
    frames = [["f", "/lib/resource_sharer.py", 3]]
    entry = log("note", 100, "", frames=frames, more={"a": {"b": ["ConnectionRefusedError"]}})

    assert entry.tags == ("producer-exits-before-get",)
    assert contains(entry, "RefusedError")
    assert not contains(entry, "needle")


def test_a_message_may_require_a_kind_of_note() -> None:
    tags = [log(kind, 100, "EOFError").tags for kind in ("exception", "receive-failed")]

    assert tags == [(), ("sender-did-not-answer",)]


def test_a_message_may_exclude_a_kind_of_note() -> None:
    words = "AttributeError: Can't pickle local object 'f.<locals>.<lambda>'"

    assert "spawn-unpicklable-object" in log("exception", 100, words).tags
    assert "spawn-unpicklable-object" not in log("lost-item", 100, words).tags


def test_every_row_of_the_table_has_an_example_here() -> None:
    rules = [known.rule for known in KNOWN_ERRORS]

    assert rules == sorted(set(rules))
    assert set(rules) <= {rule for rule, _ in HEARD}


def test_evidence_names_the_place_once() -> None:
    entry = log("exception", 100, "OSError at queue put", where="queue put", site="train.py:5")

    assert evidence_of(entry) == ("OSError at queue put", "site: train.py:5")


def test_evidence_of_a_note_without_words_is_its_kind() -> None:
    assert evidence_of(log("lost-item", 100)) == ("a note of kind lost-item",)


def test_evidence_names_the_line_of_code() -> None:
    own = log("note", 100, "said", file="/home/me/train.py", line=9, function="step")
    by_frames = log(
        "note",
        100,
        "said",
        frames=[
            ["feed", "/usr/lib/python3.11/queues.py", 1],
            ["main", "/home/me/train.py", 7],
            "?",
        ],
    )
    nowhere = log("note", 100, "said", frames=[["f", 3, "x"]])

    assert evidence_of(own) == ("said", "at train.py:9 step")
    assert evidence_of(by_frames) == ("said", "at train.py:7 main")
    assert evidence_of(nowhere) == ("said",)


def generators(number: int, **hashes: str) -> LogEntry:
    return log("generators", number, "generators", worker_id=number, hashes=hashes)


def test_equal_generators_in_two_workers_are_named() -> None:
    entries = (
        generators(200, rng="aa", numpy="11"),
        generators(201, rng="aa", numpy="22"),
        generators(201, rng="aa", numpy="33"),
    )
    job = snapshot_of(main(), process(200), process(201), log=entries)

    finding = only(CHECKS["numpy-rng-identical"], job)

    assert finding.process == pid(100)
    assert finding.subject == "rng"
    assert "loader-worker 200 (200) and loader-worker 201 (201)" in finding.evidence[0]


def test_generators_that_differ_or_belong_to_one_or_no_worker_are_quiet() -> None:
    entries = (
        generators(200, rng="aa"),
        generators(201, rng="bb"),
        generators(999, rng="aa"),
        log("generators", 201, "generators", hashes="aa"),
        replace(generators(201, epoch="dd"), details={"worker_id": 0, "hashes": {"epoch": "cc"}}),
        replace(generators(200, epoch="cc"), details={"worker_id": 0, "hashes": {"epoch": "cc"}}),
    )
    job = snapshot_of(main(), process(200), process(201), log=entries)

    assert found(CHECKS["numpy-rng-identical"], job) == []


def test_only_numbers_are_numbers() -> None:
    details = {"a": 3, "b": True, "c": "4", "d": 2.5}

    assert [number_of(details, name) for name in "abcde"] == [3, None, None, 2.5, None]


def test_the_path_to_what_cannot_be_pickled_is_evidence() -> None:
    entry = log("unpicklable", 100, "cannot pickle", path="dataset.cfg['aug'][1].op")

    finding = only(CHECKS["spawn-unpicklable-object"], snapshot_of(main(), log=(entry,)))

    assert finding.summary.endswith("dataset.cfg['aug'][1].op")


def test_a_handle_that_its_sender_does_not_recognise_is_no_exited_producer() -> None:
    entry = log("receive-failed", 100, "receive failed: EOFError", address="/tmp/x")

    assert found(CHECKS["producer-exits-before-get"], snapshot_of(main(), log=(entry,))) == []
    assert only(CHECKS["raw-fork-inherits-sharer"], snapshot_of(main(), log=(entry,))).evidence


def test_processes_with_the_same_error_are_one_finding() -> None:
    entries = tuple(log("exception", n, "ValueError: too many fds") for n in (100, 200, 201))
    job = snapshot_of(main(), process(200), process(201), log=entries)

    finding = only(CHECKS["forkserver-too-many-fds"], job)

    assert finding.evidence[-1] == "2 more processes reported the same"


PICKLE = log("exception", 100, "AttributeError: Can't pickle local object 'f.<locals>.g'")


@pytest.mark.parametrize(
    ("python", "method", "count"),
    [("3.14.0", None, 1), ("3.15.1", "forkserver", 1), ("3.13.2", None, 0), ("3.14.0", "spawn", 0)],
)
def test_the_new_default_is_named_only_where_it_applies(
    python: str, method: str | None, count: int
) -> None:
    job = main(hook=Hook("ready", python=python), more={"start_method": method})
    check = CHECKS["python314-forkserver-default"]

    assert len(found(check, snapshot_of(job, log=(PICKLE,)))) == count


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ("ValueError: too many fds", "at most 251"),
        ("before the current process has finished its bootstrapping phase", "imports the main"),
        ("AttributeError: Can't get attribute 'f' on <module 'data'>", "by name"),
        ("TypeError: cannot pickle '_thread.lock' object", "cannot be pickled"),
    ],
)
def test_the_new_default_is_described_by_what_failed(words: str, cause: str) -> None:
    job = main(hook=Hook("ready", python="3.14.0"))
    check = CHECKS["python314-forkserver-default"]

    finding = only(check, snapshot_of(job, log=(log("exception", 100, words),)))

    causes = ("at most 251", "imports the main", "by name", "cannot be pickled")
    assert [each in finding.cause for each in causes] == [each == cause for each in causes]
    assert words in finding.evidence


def test_an_item_that_a_queue_could_not_pickle_does_not_have_the_new_default_as_its_cause() -> None:
    job = main(hook=Hook("ready", python="3.14.0"))
    lost = log("lost-item", 100, "TypeError: cannot pickle 'generator' object")

    assert found(CHECKS["python314-forkserver-default"], snapshot_of(job, log=(lost,))) == []


def test_an_unknown_python_has_no_new_default() -> None:
    check = CHECKS["python314-forkserver-default"]

    assert found(check, snapshot_of(main(), log=(PICKLE,))) == []
    assert found(check, snapshot_of(main(python_version="x.y"), log=(PICKLE,))) == []
    assert found(check, snapshot_of(main(), log=(replace(PICKLE, process=pid(999)),))) == []


def test_an_empty_job_has_no_findings() -> None:
    for rule in RULES:
        assert found(rule.check, snapshot_of(), NO_HISTORY) == [], rule.id


RAISED = (
    "ValueError: Expected more than 1 value per channel when training, got input size [1, 128]",
    "ValueError: Expected parameter probs (Tensor of shape (2,)) of distribution Categorical("
    "probs: torch.Size([2])) to satisfy the constraint Simplex(), but found invalid values: "
    "tensor([nan, nan])",
    "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn",
    "RuntimeError: Trying to backward through the graph a second time (or directly access saved "
    "tensors after they have already been freed)",
    "RuntimeError: one of the variables needed for gradient computation has been modified by an "
    "inplace operation: [torch.FloatTensor [4]] is at version 1; expected version 0 instead",
    "IndexError: Target 10 is out of bounds.",
    "IndexError: index out of range in self",
    "torch.AcceleratorError: CUDA error: device-side assert triggered",
    "RuntimeError: Expected all tensors to be on the same device, but found at least two devices",
    "RuntimeError: Error(s) in loading state_dict for Net: Missing key(s) in state_dict: weight",
    "ValueError: Default process group has not been initialized, please make sure to call "
    "init_process_group.",
    "RuntimeError: Too many open files. Communication with the workers is no longer possible. "
    "Please increase the limit using `ulimit -n` in the shell",
    "ValueError: filedescriptor out of range in select()",
    "ValueError: Separator is found, but chunk is longer than limit",
    "asyncio.exceptions.LimitOverrunError: Separator is not found, and chunk exceed the limit",
    "RuntimeError: dictionary changed size during iteration",
)


def ended_by(message: str) -> Finding:
    return Finding(
        rule="worker-exited-unexpectedly",
        severity=Severity.CRITICAL,
        summary="worker 0 (200) ended unexpectedly: exit code 1, by an error at model.py:21 loss",
        evidence=("worker 0 (200) ended: exit code 1", f"exception: {message}"),
        cause="Processes that wait for this one are not notified.",
        advice="Fix the code at model.py:21 loss. Catch expected exceptions in the worker itself.",
    )


@pytest.mark.parametrize("message", RAISED)
def test_an_exception_whose_mistake_is_elsewhere_is_explained(message: str) -> None:
    row = explained(ended_by(message))
    told = with_explanation(Index(snapshot_of(main())), ended_by(message))

    assert row is not None
    assert told.cause == f"{row.cause} Processes that wait for this one are not notified."
    assert told.advice == row.advice


@pytest.mark.parametrize(
    ("advice", "rest"),
    [
        ("Fix the code at the line shown, or at the end of the first traceback.", ""),
        ("Fix the code that raises it. Catch expected exceptions. End all.", "End all."),
        ("Fix the code at step-1.py:7 a.b. End the others.", "End the others."),
        ("Check the exit status (run(..., check=True)).",) * 2,
    ],
)
def test_an_explained_exception_is_not_to_be_mended_where_it_was_raised(
    advice: str, rest: str
) -> None:
    finding = replace(ended_by(RAISED[0]), advice=advice)
    row = explained(finding)

    assert row is not None
    told = with_explanation(Index(snapshot_of(main())), finding).advice
    assert told == f"{row.advice} {rest}".rstrip()


def test_a_rule_that_is_about_the_same_is_not_explained_again() -> None:
    (message,) = (each for each in RAISED if "Too many open files" in each)
    full = replace(ended_by(message), rule="fd-exhaustion-receiver")

    assert explained(full) is None


def test_each_explanation_has_an_example() -> None:
    assert {explained(ended_by(message)) for message in RAISED} == set(EXPLAINED)


def test_other_exceptions_are_left_as_they_are() -> None:
    finding = ended_by("KeyError: 'labels'")

    assert with_explanation(Index(snapshot_of(main())), finding) == finding


def test_values_that_are_no_numbers_may_come_from_the_deviation_of_one_element() -> None:
    text = "adv = (adv - adv.mean()) / (adv.std() + 1e-8)"
    mark = Mark("std", "/home/me/ppo.py", "learn", "", Statement(52, text))
    index = Index(snapshot_of(main(), marks=(mark,)))

    told = with_explanation(index, ended_by(RAISED[1]))

    assert f"had one element, `{text}` at ppo.py:52 learn gave NaN." in told.cause
    assert "Use std(unbiased=False)" in told.advice
    assert "std()" not in with_explanation(index, ended_by(RAISED[0])).cause
