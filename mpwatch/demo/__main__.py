"""Write the five files of a new rule as skeletons, in a checkout of mpwatch.

    python -m mpwatch.demo new RULE CHAPTER
    python -m mpwatch.demo new RULE CHAPTER --message "part of an error message that proves it"

The recipe "a rule" of CONTRIBUTING says what belongs in each. The new test fails until it does.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys

CHAPTERS = (
    "distributed", "exits", "gpu", "hangs", "memory", "results", "starting", "throughput",
    "transport",
)  # fmt: skip

PROGRAM = '''\
"""TODO: what the program does wrong, as an imperative sentence.

TODO: how it fails, and why.
"""

import time

from mpwatch.demo.bounds import begin, mended


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    if not mended():
        print("TODO: make the mistake here", flush=True)
    print("ready", flush=True)
    time.sleep(max(0.0, until_s - time.monotonic()))


if __name__ == "__main__":
    main()
'''
ENTRY = """\
    Scenario(
        name="{rule}",
        title="TODO: what the program does",
        neighbour="TODO: what it does instead with --mended",
        expected=("{rule}",),
        layer="{layer}",
    ),
"""
RULE = '''\
"""TODO: what happens to which process, in one line."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process

RULE = "{rule}"


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each process that TODO."""
    for process in index.snapshot.living():
        if _has_failed(process):
            yield Finding(
                rule=RULE,
                severity=Severity.WARNING,
                process=process.process,
                summary=f"{{called(process)}} TODO: what happened",
                evidence=("TODO: what was observed",),
                cause="TODO: why, only what the evidence shows.",
                advice="TODO: a fix, and its trade-off.",
            )


def _has_failed(process: Process) -> bool:
    """Whether TODO."""
    return False
'''
TEST = """\
from __future__ import annotations

from mpwatch.diagnose.rules.{chapter} import {stem}
from tests.builders.snapshots import found, main, only, snapshot_of


def test_todo_the_failure_is_named_with_its_evidence() -> None:
    finding = only({stem}.check, snapshot_of(main()))  # TODO: a job that fails

    assert finding.evidence == ("TODO",)


def test_todo_the_nearest_healthy_job_has_no_finding() -> None:
    assert found({stem}.check, snapshot_of(main())) == []
"""
KNOWN_ERROR = """\
    KnownError(
        rule="{rule}",
        messages=(message({text}),),
        summary="TODO: what happened, to follow the name of the process",
        cause="TODO: why, only what the message proves.",
        advice="TODO: a fix, and its trade-off.",
    ),
"""
HEARD = """\
    ("{rule}", log("exception", 100, "TODO: a whole message")),
"""
KNOWN_RULE = re.compile(r'^    KnownError\(\n        rule="([^"]+)"', re.MULTILINE)
"""Rows of the table of messages, which is sorted."""
SIGNAL = '    "{rule}": says("TODO: a line that it prints when it fails"),\n'


def new(rule: str, chapter: str, root: str, message: str = "") -> list[str]:
    """Write the files below a checkout's root, and return their paths.

    Args:
        rule: Its id.
        chapter: Of `CHAPTERS`.
        root: The checkout.
        message: Part of an error message that proves the failure; empty for a rule of its own.

    Raises:
        ValueError: The rule or one of the files exists; nothing was written.
    """
    stem = rule.replace("-", "_")
    layer = "hook" if message else "proc"
    whole = {f"mpwatch/demo/programs/{stem}.py": PROGRAM}
    rows = {
        "mpwatch/demo/catalogue.py": (ENTRY, f"\n{chapter.upper()} = (\n", "\n)\n"),
        "tests/integration/demo/signals.py": (
            SIGNAL,
            "\nSIGNALS: dict[str, Signal] = {\n",
            "\n}\n",
        ),
    }
    if message:
        begin = "\nKNOWN_ERRORS: tuple[KnownError, ...] = (\n"
        rows["mpwatch/describe/error_messages.py"] = (KNOWN_ERROR, begin, "\n)\n")
        begin = "\nHEARD: tuple[tuple[str, LogEntry], ...] = (\n"
        rows["tests/unit/diagnose/rules/test_known_errors.py"] = (HEARD, begin, "\n)\n")
    else:
        whole[f"mpwatch/diagnose/rules/{chapter}/{stem}.py"] = RULE.format(rule=rule)
        test = TEST.format(chapter=chapter, stem=stem)
        whole[f"tests/unit/diagnose/rules/test_{stem}.py"] = test
    for path in whole:
        if os.path.exists(os.path.join(root, path)):
            raise ValueError(f"{path} exists already")
    for path, (row, begin, end) in rows.items():
        with open(os.path.join(root, path), encoding="utf-8") as file:
            text = file.read()
        at = text.find(end, text.find(begin)) + 1
        later = [found.start() for found in KNOWN_RULE.finditer(text) if found[1] > rule]
        at = min([at, *later])
        if f'"{rule}"' in text or begin not in text or not at:
            raise ValueError(f"{path} has this rule already, or lacks the table that it belongs to")
        whole[path] = (
            text[:at] + row.format(rule=rule, text=json.dumps(message), layer=layer) + text[at:]
        )
    for path, text in whole.items():
        with open(os.path.join(root, path), "w", encoding="utf-8") as file:
            file.write(text)
    return list(whole)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="mpwatch.demo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=["new"])
    parser.add_argument("rule", help="its id, such as max-map-count")
    parser.add_argument("chapter", choices=CHAPTERS)
    parser.add_argument("--message", default="", help="part of an error message that proves it")
    options = parser.parse_args()
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", options.rule):
        parser.error("a rule id has small letters, digits and hyphens")
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    try:
        print(*new(options.rule, options.chapter, root, options.message), sep="\n")
    except (OSError, ValueError) as error:
        print(f"mpwatch.demo: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
