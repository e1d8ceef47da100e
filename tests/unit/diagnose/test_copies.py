"""Lines that copy all that was added before: which they are, and what findings say of them."""

from __future__ import annotations

from typing import get_args

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.growth.registrations import with_handlers
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.source.costs import (
    Costly,
    copying,
    costly,
    with_copies,
)
from mpwatch.diagnose.analysis.throughput.saved_parts import with_saved_parts
from mpwatch.model.account import ARCHIVE_TABLE, COPYING, DECOMPRESSION, Activity
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.samples import Frame, WaitedOn
from mpwatch.model.source_code import Mark, SlowKind, SourceLine, Statement
from mpwatch.model.waits import WaitEdge, WaitGraph
from tests.builders.accounts import COMPUTES, JOINS, with_shares
from tests.builders.snapshots import MAIN, main, process, snapshot_of, thread

KEEPS = Mark("kept", "/home/me/train.py", "add", "self.parts", Statement(3, "self.parts.append(x)"))


def index_of(text: str) -> Index:
    line = SourceLine("/home/me/train.py", 12, "add", Statement(12, text))
    return Index(snapshot_of(main(), source=(line,), marks=(KEEPS,)))


@pytest.mark.parametrize(
    ("text", "words", "is_sure"),
    [
        (
            "self.track = np.concatenate([self.track, rows])",
            "np.concatenate copies all of self.track each time",
            True,
        ),
        ("obs = torch.cat((obs, batch), dim=0)", "torch.cat copies all of obs each time", True),
        ("rows = np.append(rows, row, axis=0)", "np.append copies all of rows each time", True),
        ("frame = pd.concat([frame, part])", "pd.concat copies all of frame each time", True),
        (
            "window = torch.stack(self.parts)[-8:]",
            "torch.stack copies all of self.parts each time, which only grows",
            True,
        ),
        ("data += part", "+= copies all of data if that is bytes, str or a tuple", False),
        (
            "log = log + [line]",
            "+ copies all of log if that is a list, bytes, str or a tuple",
            False,
        ),
        (
            "bleu = corpus_bleu(self.parts, self.targets)",
            "corpus_bleu is given all of self.parts each time, which only grows",
            False,
        ),
        ("n = len(self.parts)", None, None),
        ("n = score(self.parts[-1])", None, None),
        ("x = np.concatenate([a, b])", None, None),
        ("x = np.concatenate([x.head, b])", None, None),
        ("n = rate(n + 1)", None, None),
        ("self.parts.append(x)", None, None),
    ],
)
def test_a_line_that_copies_what_was_added_before_is_known(
    text: str, words: str | None, is_sure: bool | None
) -> None:
    found = copying(index_of(text), "train.py:12 add")

    assert (None if found is None else found.words) == words
    assert (None if found is None else found.is_sure) == is_sure


def finding(rule: str) -> Finding:
    return Finding(
        rule=rule,
        severity=Severity.INFO,
        summary="main (100) works all the time at train.py:12 add",
        evidence=("busy",),
        cause="It always has work.",
        advice="Do less.",
    )


def test_a_finding_about_such_a_line_says_what_it_copies() -> None:
    joins = index_of("self.track = np.concatenate([self.track, rows])")

    told = with_copies(joins, finding("pipeline-bottleneck"))

    assert told.summary.endswith("add: np.concatenate copies all of self.track each time")
    assert told.cause.startswith("np.concatenate copies all")
    assert "the square of their number" in told.cause
    assert told.cause.endswith("It always has work.")
    assert told.advice.startswith("Collect the parts in a list")


def test_an_addition_is_reported_only_where_memory_or_the_pace_shows_copies() -> None:
    adds = index_of("data += part")

    assert with_copies(adds, finding("pipeline-bottleneck")) == finding("pipeline-bottleneck")
    told = with_copies(adds, finding("page-fault-cost"))
    assert told.cause.startswith("Likely: += copies all of data if that is bytes")


@pytest.mark.parametrize(
    ("about", "words", "advice"),
    [
        (
            "deque self.rows, self.rows[j]",
            "self.rows[j] steps through the deque self.rows from its nearer end",
            "Keep what self.rows holds in a list with a position to write at",
        ),
        (
            "list names, names.pop(0)",
            "names.pop(0) moves all that the list names holds by one place",
            "Make names a collections.deque",
        ),
        (
            "list names, name in names",
            "name in names goes through the list names until it finds it",
            "Keep a set, or a dict of positions, beside names",
        ),
    ],
)
def test_a_line_that_goes_through_a_container_is_reported(
    about: str, words: str, advice: str
) -> None:
    mark = Mark("walks", "/home/me/train.py", "add", about, Statement(12, "the(statement)"))
    line = SourceLine("/home/me/train.py", 12, "<listcomp>", Statement(12, "the(statement)"))
    other = replace(line, line=13, statement=Statement(13, "another(statement)"))
    index = Index(snapshot_of(main(), source=(line, other), marks=(mark,)))

    found = costly(index, "train.py:12 <listcomp>")
    told = with_copies(
        index, replace(finding("loader-starvation"), summary="at train.py:12 <listcomp>")
    )

    assert found is not None
    assert found.words == words
    assert found.advice.startswith(advice)
    assert costly(index, "train.py:13 <listcomp>") is None
    assert told.summary == f"at train.py:12 <listcomp>: {words}"
    assert told.advice.startswith(advice)


def test_what_computes_on_all_parts_is_reported_where_the_pace_shows_it() -> None:
    given = index_of("bleu = corpus_bleu(self.parts)")

    assert with_copies(given, finding("pipeline-bottleneck")) == finding("pipeline-bottleneck")
    told = with_copies(given, finding("bottleneck-process"))
    assert told.cause.startswith("Likely: corpus_bleu is given all of self.parts each time")
    assert told.advice.startswith("Keep the result up to date with each part that is added to self")


def test_a_line_that_logs_to_ever_more_handlers_is_told_with_what_adds_them() -> None:
    adds = Mark(
        "registers",
        "/home/me/logs.py",
        "get_logger",
        "removeHandler() for SocketHandler; train.py:10-14 add",
        Statement(18, "logger.addHandler(handler)"),
    )

    def told(text: str, at: str = "train.py:add:12") -> Finding:
        line = SourceLine("/home/me/train.py", 12, "add", Statement(12, text))
        own = main(threads=[thread(MAIN, "logs.py:emit:3", at)])
        index = Index(snapshot_of(own, source=(line,), marks=(adds,)))
        return with_handlers(index, replace(finding("pipeline-bottleneck"), process=own.process))

    log = told("self.log.debug('%d', n)")

    assert log.summary.endswith(
        "logs.py:18 get_logger adds one more handler to a logger in each round"
    )
    assert log.cause.startswith(
        "`logger.addHandler(handler)` at logs.py:18 get_logger adds a handler"
    )
    assert log.cause.endswith("It always has work.")
    assert log.advice.startswith("Add the handler once in each process")
    assert "logs.py" not in told("self.rows.append(n)").summary
    assert "logs.py" not in told("self.log.debug('%d', n)", "train.py:add:40").summary


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("each call of save()", "written in each call of save()"),
        ("main.py:50-60 run", "written in each round of the loop at main.py:50-60 run"),
    ],
)
def test_a_line_that_writes_all_that_was_collected_is_told_with_what_adds_to_it(
    where: str, words: str
) -> None:
    statement = Statement(12, "json.dump(self.rows, f, indent=2)")
    line = SourceLine("/home/me/train.py", 12, "add", statement)
    slow = Mark("slow", line.file, "add", f"indented: {statement.text}", statement)
    mark = Mark("rewrites", line.file, "add", f"self.rows, put, 9; {where}", statement)
    index = Index(snapshot_of(main(), source=(line,), marks=(slow, mark)))

    told = with_copies(index, finding("pipeline-bottleneck"))

    assert told.summary.endswith("add: all of self.rows is encoded and written again for each item")
    assert "train.py:9 put adds to self.rows" in told.cause
    assert words in told.cause
    assert told.advice.startswith("Append each item to the file by itself")


def test_every_kind_of_slow_expression_has_words() -> None:
    for kind in get_args(SlowKind):
        mark = Mark("slow", "/home/me/train.py", "add", f"{kind}: f(x)", Statement(12, "y = f(x)"))
        line = SourceLine("/home/me/train.py", 12, "add", Statement(12, "y = f(x)"))
        index = Index(snapshot_of(main(), source=(line,), marks=(mark,)))

        told = with_copies(index, finding("pipeline-bottleneck"))

        assert told.summary.startswith("main (100) works all the time at train.py:12 add: f(x) ")
        assert told.cause.startswith("At that line, f(x) ")
        assert told.advice.endswith("Do less.")


def of_key(*stack: Frame, marks: tuple[Mark, ...] = ()) -> Costly | None:
    """What is said of the line that the program has last entered, where its stack is this."""
    lines = (
        SourceLine("/home/me/keys.py", 12, "update", Statement(12, "self.md5.update(x)")),
        SourceLine("/home/me/keys.py", 40, "key", Statement(40, "h.update(value)")),
        SourceLine("/home/me/data.py", 46, "get", Statement(46, "y = self.cached(self.scan, n)")),
    )
    own = main(threads=[replace(thread(MAIN), stack=stack)])
    own_frame = next(each for each in stack if each.file.startswith("/home/me"))
    place = f"{own_frame.file.rpartition('/')[2]}:{own_frame.line} {own_frame.function}"
    return costly(Index(snapshot_of(own, source=lines, marks=marks)), place)


def test_a_digest_of_a_large_argument_is_told_with_the_call_that_gives_it() -> None:
    update = Frame("update", "/home/me/keys.py", 12)
    key = Frame("key", "/home/me/keys.py", 40)
    get = Frame("get", "/home/me/data.py", 46)
    statement = Statement(12, "self.md5.update(x)")
    mark = Mark("slow", update.file, "update", f"digest: {statement.text}", statement)

    found = of_key(update, key, get, marks=(mark,))
    of_one_file = of_key(update, key, marks=(mark,))

    assert found is not None
    assert found.words == (
        "self.md5.update(x) computes a digest of all bytes of its argument each time"
    )
    assert found.cause.endswith(
        "What is hashed comes from the call `y = self.cached(self.scan, n)` at data.py:46 get."
    )
    assert found.advice.startswith("Make the key of what names the data (an id, a path")
    assert of_one_file is not None
    assert of_one_file.cause.endswith("the call `h.update(value)` at keys.py:40 key.")
    assert of_key(get, marks=(mark,)) is None


def test_a_call_whose_arguments_joblib_hashes_is_told() -> None:
    get = Frame("get", "/home/me/data.py", 46)
    library = "/usr/lib/python3/site-packages/joblib"

    hashed = of_key(Frame("hash", f"{library}/hashing.py", 250), get)

    assert hashed is not None
    assert hashed.words.startswith("joblib computes a digest of all arguments of that call")
    assert of_key(Frame("load_item", f"{library}/_store_backends.py", 60), get) is None


@pytest.mark.parametrize(
    ("text", "copied"),
    [
        ("self.rows[key][:n].copy()", "self.rows[key][:n]"),
        ("self.weight.clone()", "self.weight"),
        ("np.stack(self.rows)", "self.rows"),
    ],
)
def test_what_a_statement_copies_whole_is_named(text: str, copied: str) -> None:
    mark = Mark("slow", "/home/me/train.py", "add", f"copy: {text}", Statement(12, text))
    line = SourceLine("/home/me/train.py", 12, "add", Statement(12, text))

    found = costly(Index(snapshot_of(main(), source=(line,), marks=(mark,))), "train.py:12 add")

    assert found is not None
    assert found.words == f"{text} copies all of {copied} each time"


def test_a_line_of_another_file_with_the_same_statement_is_not_slow() -> None:
    mark = Mark("slow", "/home/me/other.py", "add", "rows: f(x)", Statement(12, "y = f(x)"))
    line = SourceLine("/home/me/train.py", 12, "add", Statement(12, "y = f(x)"))

    index = Index(snapshot_of(main(), source=(line,), marks=(mark,)))

    assert costly(index, "train.py:12 add") is None


def test_a_function_that_computes_is_told_with_the_call_that_passes_over_its_cache() -> None:
    line = SourceLine("/home/me/audio.py", 24, "kernel", Statement(24, "window = i0(t)"))
    call = Statement(45, "return apply(wav, *kernel(orig, new))")
    past = Mark("past-cache", "/home/me/audio.py", "resample", "kernel, cached_kernel", call)

    def told(*marks: Mark) -> Finding:
        index = Index(snapshot_of(main(), source=(line,), marks=marks))
        given = Finding("r", Severity.INFO, "model waits for a at audio.py:24 kernel", (), "c", "a")
        return with_copies(index, given)

    finding = told(past)

    assert finding.summary.endswith(", called past the cache of cached_kernel() by resample()")
    assert finding.cause.startswith(
        "`return apply(wav, *kernel(orig, new))` at audio.py:45 resample"
    )
    assert finding.advice.startswith("Call cached_kernel() in place of kernel() at audio.py:45")
    another = past._replace(function="other", statement=Statement(60, "kernel(a, b)"))
    assert "cache" not in told(past, another).summary
    assert "cache" not in told(past._replace(file="/home/me/other.py")).summary
    assert "cache" not in told(past._replace(about="scaled, cached_scaled")).summary


@pytest.mark.parametrize(
    ("what", "is_told"), [(ARCHIVE_TABLE, True), (DECOMPRESSION, False), ("Python code", False)]
)
def test_the_table_of_a_tar_is_read_at_a_line_inside_of_its_block(what: str, is_told: bool) -> None:
    opens = Statement(11, "with tarfile.open(self.path) as t:")
    mark = Mark("slow", "/home/me/train.py", "get", "archive: tarfile.open(self.path)", opens)
    reads = Statement(12, "member = t.getmember(key)")
    line = SourceLine("/home/me/train.py", 12, "get", reads, within=(opens,))
    seen = snapshot_of(main(), source=(line,), marks=(mark,))
    spent = Activity("computing", what, place="train.py:12 get")

    found = costly(Index(with_shares(seen, p100={spent: 1.0})), "train.py:12 get")

    assert (found is not None) is is_told


SAVES = Mark("saves", "/home/me/store.py", "put", "1", Statement(19, "torch.save(x, buffer)"))
GIVES = Mark(
    "passes-part",
    "/home/me/run.py",
    "dump",
    "put, 1, feats, feats[i]",
    Statement(49, "store.put(clip, feats[i])"),
)


def of_saving(*found: Mark, at: int = 20, caller: str = "run.py:dump:49") -> Finding:
    """A finding about the time at a line below the one that saves."""
    text = "blob = zlib.compress(buffer)" if at > 19 else "x = prepare(x)"
    line = SourceLine("/home/me/store.py", at, "put", Statement(at, text))
    file, function, number = caller.split(":")
    stack = (
        Frame("put", "/home/me/store.py", at),
        Frame(function, f"/home/me/{file}", int(number)),
    )
    own = main(threads=[replace(thread(MAIN), stack=stack)])
    slow = replace(
        finding("hot-spot"),
        process=own.process,
        summary=f"main computes 90% of the time, most of it at store.py:{at} put",
        is_doubtful=True,
    )
    return with_saved_parts(Index(snapshot_of(own, source=(line,), marks=found)), slow)


def test_a_part_of_a_tensor_that_is_saved_with_all_of_it_is_told_where_that_takes_the_time() -> (
    None
):
    told = of_saving(SAVES, GIVES)

    assert told.summary.endswith("store.py:20 put: all of feats is saved for each feats[i]")
    assert told.cause.startswith(
        "`store.put(clip, feats[i])` at run.py:49 dump gives feats[i] to put(), which saves it at "
        "`torch.save(x, buffer)` at store.py:19 put. If feats is a tensor, feats[i] is a view of it"
    )
    assert told.advice.startswith("Save a copy of the part: feats[i].clone() at run.py:49")
    assert ".contiguous() and .detach() do not help" in told.advice
    assert not told.is_doubtful


@pytest.mark.parametrize(
    ("marks", "at", "caller"),
    [
        ((SAVES,), 20, "run.py:dump:49"),
        ((GIVES,), 20, "run.py:dump:49"),
        ((SAVES, GIVES), 12, "run.py:dump:49"),  # above the line that saves
        ((SAVES, GIVES), 20, "other.py:dump:49"),  # another caller
        ((SAVES, GIVES._replace(about="put, 2, feats, feats[i]")), 20, "run.py:dump:49"),
        ((SAVES, GIVES._replace(about="add, 1, feats, feats[i]")), 20, "run.py:dump:49"),
        ((SAVES._replace(file="/home/me/other.py"), GIVES), 20, "run.py:dump:49"),
    ],
)
def test_what_is_saved_is_not_told_where_something_else_takes_the_time(
    marks: tuple[Mark, ...], at: int, caller: str
) -> None:
    told = of_saving(*marks, at=at, caller=caller)

    assert "is saved for each" not in told.summary
    assert told.is_doubtful


def test_a_line_that_saves_a_part_itself_is_told() -> None:
    part = Mark(
        "saves-part",
        "/home/me/store.py",
        "put",
        "x[a:b], x",
        Statement(19, "torch.save(x[a:b], path)"),
    )
    told = of_saving(part)

    assert told.cause.startswith("`torch.save(x[a:b], path)` at store.py:19 put saves x[a:b]. If x")
    assert told.advice.startswith("Save a copy of the part: x[a:b].clone() at store.py:19 (or")


def of_loading(text: str) -> Finding:
    """As `of_receiving`, where only the line of the receiver is known, and a message is large."""
    line = SourceLine("/home/me/load.py", 26, "poll", Statement(26, text))
    wants = WaitedOn("pipe-write", "write", ("pipe:[7]",), (3,), wanted_bytes=32 << 20)
    return of_receiving("room in a full pipe", does="native code", lines=(line,), wants=wants)


def of_receiving(
    what: str,
    share: float = 0.5,
    does: str = COPYING,
    lines: tuple[SourceLine, ...] = (),
    wants: WaitedOn | None = None,
    sibling: Activity | None = None,
) -> Finding:
    """A finding about the process that gets what another one has saved, which waits for it."""
    line = SourceLine("/home/me/store.py", 20, "put", Statement(20, "pipe.send_bytes(buffer)"))
    stack = (Frame("put", "/home/me/store.py", 20), Frame("dump", "/home/me/run.py", 49))
    own = main(threads=[thread(MAIN)])
    sender = process(200, "spawned", threads=[replace(thread(200, waits=wants), stack=stack)])
    gives = GIVES._replace(about="put, 1, tensor self.rows, 31 recent: self.rows[a:b]")
    third = process(300, "spawned")
    ends = (own.process,) if sibling is None else (own.process, third.process)
    seen = snapshot_of(own, sender, third, source=(line, *lines), marks=(SAVES, gives))
    edge = WaitEdge(sender.process, 200, "pipe-write", what, ends)
    seen = replace(seen, waits=WaitGraph((edge,)))
    waits = Activity("waiting", what, "pipe", ends, "store.py:20 put")
    reads = Activity("computing", does, place="load.py:26 poll")
    of_sender = {waits: share, COMPUTES: 1 - share}
    seen = with_shares(seen, p100={reads: 1.0}, p200=of_sender, p300={sibling or COMPUTES: 1.0})
    slow = replace(finding("page-fault-cost"), process=own.process, summary="main is slow")
    return with_saved_parts(Index(seen), slow)


def test_a_part_that_is_saved_is_told_of_the_process_that_receives_it() -> None:
    told = of_receiving("room in a full pipe (pipe 7)")

    assert told.summary == "main is slow: all of self.rows is saved for each self.rows[a:b]"
    assert "gives self.rows[a:b] (made at run.py:31 recent) to put(), which saves" in told.cause
    assert "self.rows is a tensor, of which self.rows[a:b] is a view, and" in told.cause
    assert "spawned 200 (200) sends that to main (100), which reads it" in told.cause
    assert told.advice.startswith("Save a copy of the part: self.rows[a:b].clone() at run.py:31 (")


@pytest.mark.parametrize(
    ("what", "share", "does"),
    [
        ("data on pipe 7", 0.5, COPYING),
        ("room in a full pipe", 0.1, COPYING),
        ("room in a full pipe", 0.5, "native code"),  # it computes, so that the others wait
    ],
)
def test_a_part_is_not_told_of_one_that_spends_its_time_otherwise(
    what: str, share: float, does: str
) -> None:
    assert of_receiving(what, share, does).summary == "main is slow"


@pytest.mark.parametrize(("sibling", "is_told"), [(COMPUTES, False), (JOINS, True)])
def test_a_part_is_not_told_of_one_that_may_only_have_inherited_the_pipe(
    sibling: Activity, is_told: bool
) -> None:
    told = of_receiving("room in a full pipe", sibling=sibling)

    assert ("is saved for each" in told.summary) is is_told


@pytest.mark.parametrize(
    ("text", "is_told"),
    [("item = torch.load(BytesIO(data))", True), ("loss = step(item)", False)],
)
def test_lines_that_load_large_messages_tell_that_a_process_receives(
    text: str, is_told: bool
) -> None:
    assert ("is saved for each" in of_loading(text).summary) is is_told
