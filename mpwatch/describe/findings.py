"""Findings in words: the labels and their order, the same in text, HTML and on screens.

Also what could not be read of a job, where it matters to it. JSON has its own keys for the same
fields, see `mpwatch.report.json`: `summary`, `evidence`, `cause`, `advice`, `eta_s`, `effect_of`.
"""

from __future__ import annotations

from collections.abc import Sequence

from mpwatch.describe.processes import full_name_of, is_on_gpu
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.samples import NO_GPUS
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.units import seconds_text

FORECAST, EVIDENCE, CAUSE, FIX, EFFECT_OF = "forecast", "evidence", "cause", "fix", "effect of"
NO_FINDINGS = "No findings: no known problems, and no limit is close."
_NO_DEVICES = ("", "-1", "NoDevFiles")
"""Values of CUDA_VISIBLE_DEVICES that hide all GPUs from a process."""


def no_findings_words(snapshot: Snapshot) -> str:
    """That there are no findings, and how long the job was watched for them."""
    watched_s = snapshot.account.watched_s
    if watched_s < 1.0:
        return NO_FINDINGS
    return NO_FINDINGS.replace("No findings", f"No findings in {seconds_text(watched_s)}", 1)


def severity_word(severity: Severity) -> str:
    """The severity as shown: `CRITICAL` in capitals, `warning`, `info`."""
    return "CRITICAL" if severity is Severity.CRITICAL else severity.word


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
