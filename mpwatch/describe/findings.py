"""Findings in words: the labels and their order, the same in text, HTML and on screens.

Also what could not be read of a job, where it matters to it. JSON has its own keys for the same
fields, see `mpwatch.report.json`: `summary`, `evidence`, `cause`, `advice`, `eta_s`, `effect_of`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from mpwatch.describe.processes import full_name, full_name_of, is_on_gpu, lasting_text
from mpwatch.model.account import NO_CORE
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.samples import NO_GPUS
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.units import bytes_text, seconds_text

FORECAST, EVIDENCE, CAUSE, FIX, EFFECT_OF = "forecast", "evidence", "cause", "fix", "effect of"
NO_FINDINGS = "No findings: no known problems, and no limit is close."
_NO_DEVICES = ("", "-1", "NoDevFiles")
"""Values of CUDA_VISIBLE_DEVICES that hide all GPUs from a process."""


WAIT_TOLD_S = 30.0
"""A wait that may be ordinary is a finding after this long without progress
(`diagnose.rules.hangs.no_progress`), one of which nothing is left to end it sooner."""
GROWTH_TOLD_S = 35.0
"""A growth takes this long to differ from a warm-up (`diagnose.analysis.growth.growing`)."""
WAIT_SHOWN_S = 5.0
"""A shorter wait is none that lasts."""
SHORT_OF_CORES = 0.5
"""A share of a minute; less than this is usual where a machine is well used."""
ITEMS_SHOWN = 3


def no_findings_lines(snapshot: Snapshot, *, is_timed: bool = True) -> tuple[str, ...]:
    """That there are no findings, and what was seen nevertheless that may become one.

    Args:
        snapshot: A job without findings.
        is_timed: Whether to say how long the job was watched for them.
    """
    watched_s = snapshot.account.watched_s
    time = f" in {seconds_text(watched_s)}" if is_timed and watched_s >= 1.0 else ""
    seen = [*_lasting_waits(snapshot), *_short_of_cores(snapshot), *_rises_words(snapshot)]
    if not seen:
        return (NO_FINDINGS.replace("No findings", f"No findings{time}", 1),)
    return (f"No findings{time}. Seen so far:", *seen)


def _lasting_waits(snapshot: Snapshot) -> Iterator[str]:
    """The waits that last and are none by design, with the time that telling them takes."""
    told = f"a wait is a finding after up to {seconds_text(WAIT_TOLD_S)} without progress"
    shown = 0
    for chain in snapshot.waits.chains:
        first, since_s = chain.links[0], chain.links[chain.cycle_at].since_s or 0.0
        may_be_stalled = chain.verdict in ("cycle", "dead-end", "unknown")
        if not may_be_stalled or since_s < WAIT_SHOWN_S or shown == ITEMS_SHOWN:
            continue
        shown += 1
        time = lasting_text(since_s, snapshot)
        yield f"{first.name} {first.words} for {time}: {chain.conclusion} ({told})"


def _short_of_cores(snapshot: Snapshot) -> Iterator[str]:
    """That processes wait for a core most of the time, and how much of the machine the job uses.

    It explains a job that is slow, or has hardly begun, for a reason outside of it.
    """
    host = snapshot.host
    if host.usable_cpus is None or host.load_1m is None or host.load_1m <= host.usable_cpus:
        return  # at 0.08 ms for each process, which this saves in each second of a calm job
    found: list[tuple[float, Process]] = []
    for process in snapshot.living():
        account = snapshot.account.processes.get(process.process)
        if account is not None:
            shares = account.main.last_minute().shares()
            share = sum(each.share for each in shares if each.activity == NO_CORE)
            if share >= SHORT_OF_CORES:
                found.append((share, process))
    if not found:
        return
    used = sum(process.cpu_percent or 0.0 for process in snapshot.living())
    found.sort(key=lambda each: -each[0])
    shown = [f"{full_name(process)} {share:.0%}" for share, process in found[:ITEMS_SHOWN]]
    more = len(found) - len(shown)
    names = ", ".join(shown) + (f" and {more} more" if more else "")
    cores = "1 core" if host.usable_cpus == 1 else f"{host.usable_cpus} cores"
    yield (
        f"of the last minute these waited for a free core: {names} ({cores}, a load of "
        f"{host.load_1m:.0f}; the job itself uses {used / 100:.1f} cores)"
    )


def _rises_words(snapshot: Snapshot) -> Iterator[str]:
    """The resources that rose, by how much, and how long it takes to tell it."""
    by_noun: dict[str, list[Rise]] = {}
    for rise in rises(snapshot, is_early=True):
        by_noun.setdefault(rise.noun, []).append(rise)
    for noun, found in by_noun.items():
        found.sort(key=lambda rise: -rise.gained)
        shown = [f"{full_name(rise.process)} {rise.gained_words}" for rise in found[:ITEMS_SHOWN]]
        more = len(found) - len(shown)
        names = ", ".join(shown) + (f" and {more} more" if more else "")
        yield (
            f"{noun} rose: {names} (a growth is a finding after at least "
            f"{seconds_text(GROWTH_TOLD_S)}, if it is steady)"
        )


class Rise(Struct, frozen=True):
    """A resource of a process that has risen for as long as its recent values reach back."""

    process: Process
    noun: str
    gained: float

    @property
    def gained_words(self) -> str:
        """By how much: `+35.1M`, `+12`."""
        is_memory = self.noun == "private memory"
        return f"+{bytes_text(int(self.gained)) if is_memory else f'{self.gained:.0f}'}"


_RISES: Sequence[tuple[str, str, float]] = (
    ("private_bytes", "private memory", 3 << 20),
    ("fds", "open descriptors", 4),
    ("maps", "memory mappings", 24),
)
"""The trends of a process, what they are of, and the least rise that may be the start of one."""
_RISE_POINTS = 6
_EARLY_POINTS = 3


def rises(snapshot: Snapshot, *, is_early: bool = False) -> Iterator[Rise]:
    """The resources of living processes that rise, also where no finding tells it yet.

    Args:
        snapshot: The job.
        is_early: Also what few values show that never fell: of a start as of a growth.
    """
    for process in snapshot.living():
        for name, noun, least in _RISES:
            values = [each for each in getattr(process.trends, name) if each is not None]
            if len(values) < _EARLY_POINTS or values[-1] - values[0] < least:
                continue
            is_rising = len(values) >= _RISE_POINTS and _rises_in_each_third(values)
            if is_rising or (is_early and _never_falls(values)):
                yield Rise(process, noun, values[-1] - values[0])


def _rises_in_each_third(values: Sequence[float]) -> bool:
    count = len(values)
    thirds = [min(values[n * count // 3 : (n + 1) * count // 3]) for n in range(3)]
    return thirds[0] < thirds[1] < thirds[2] < values[-1]


def _never_falls(values: Sequence[float]) -> bool:
    """Whether values rise to the end, also in their second half, and fall nowhere."""
    is_monotonic = all(one <= other for one, other in pairwise(values))
    return is_monotonic and values[-1] > values[len(values) // 2]


def severity_word(severity: Severity) -> str:
    """The severity as shown: `CRITICAL` in capitals, `warning`, `info`."""
    return "CRITICAL" if severity is Severity.CRITICAL else severity.word


def capital(words: str) -> str:
    """The words with a capital letter at their beginning."""
    return words[:1].upper() + words[1:]


def unresolved(snapshot: Snapshot) -> list[Finding]:
    """The findings that hold now, in the order of the snapshot: effects below their cause."""
    return [finding for finding in snapshot.findings if finding.resolved_s is None]


def subject_of(finding: Finding, snapshot: Snapshot) -> str:
    """The process, and the thread if it is not the main thread: `worker 3 (41829) thread 41830`."""
    if finding.process is None:
        return "the whole job"
    words = full_name_of(finding.process, snapshot)
    if finding.tid is not None and finding.tid != finding.process.pid:
        words += f" thread {finding.tid}"
    return words


def labelled_fields(finding: Finding, bullet: str = "") -> list[tuple[str, str]]:
    """Label and text of each field below the summary, in the order in which they are shown.

    Several pieces of evidence have the same label. The fix states its trade-off. Fields without
    text are left out; the forecast is not among them, because screens show it in their first line.

    Args:
        finding: The finding.
        bullet: Put before each of several pieces of evidence, which would otherwise read as one
            text where lines are wrapped.
    """
    mark = bullet if len(finding.evidence) > 1 else ""
    rows = [(EVIDENCE, mark + evidence) for evidence in finding.evidence]
    rows += [(CAUSE, finding.cause), (FIX, finding.advice), (EFFECT_OF, finding.effect_of or "")]
    return [(label, text) for label, text in rows if text]


def effects_below_causes(findings: Sequence[Finding]) -> list[Finding]:
    """The findings in their order, but each followed by its effects; each once, also in a cycle."""
    effects: dict[str, list[Finding]] = {}
    rules = {finding.rule for finding in findings}
    for finding in findings:
        if finding.effect_of is not None:
            effects.setdefault(finding.effect_of, []).append(finding)
    ordered: list[Finding] = []
    placed: set[int] = set()

    def place(finding: Finding) -> None:
        if id(finding) in placed:
            return
        placed.add(id(finding))
        ordered.append(finding)
        for effect in effects.get(finding.rule, ()):
            place(effect)

    for finding in findings:
        if finding.effect_of not in rules:
            place(finding)
    # What is left causes itself, by way of others or directly.
    for finding in findings:
        place(finding)
    return ordered


def problems_of(snapshot: Snapshot) -> tuple[str, ...]:
    """What could not be read of the job and the host, each sentence once.

    That no GPU can be shown is left out if the job does not use one.
    """
    problems = dict.fromkeys((*snapshot.problems, *snapshot.host.problems))
    if any(problem.startswith(NO_GPUS) for problem in problems) and not uses_gpu(snapshot):
        return tuple(problem for problem in problems if not problem.startswith(NO_GPUS))
    return tuple(problems)


def uses_gpu(snapshot: Snapshot) -> bool:
    """Whether a process of the job uses a GPU, or has a setting that names GPUs."""
    return any(map(_uses_gpu, snapshot.processes))


def _uses_gpu(process: Process) -> bool:
    """By its memory on a GPU, open device files, the mapped driver, or its environment.

    The CUDA libraries of torch prove nothing: torch's default package maps them on any machine. The
    driver, `libcuda.so`, is loaded on first use.
    """
    sample = process.sample
    libraries = sample.maps.libraries if sample.maps is not None else ()
    return (
        is_on_gpu(process)
        or any(name.startswith("libcuda.so") for name in libraries)
        or sample.environment.get("CUDA_VISIBLE_DEVICES", "") not in _NO_DEVICES
    )
