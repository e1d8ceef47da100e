"""A small file that inflates to very much is read in bounded memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mpwatch.observe.recording.codec import SCHEMA, Header, LineEncoder
from mpwatch.observe.recording.file import MEMBER_BYTES_LIMIT, pack
from tests.builders.samples import MAIN, START_S, small_job

MEMORY_BYTES_LIMIT = 1 << 30
READER = """
import resource, sys
from mpwatch.observe.sources.replay import replay_to_end
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
snapshot = replay_to_end(sys.argv[1])
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print((after - before) * 1024)
print(*(each for each in snapshot.problems if sys.argv[1] in each), sep="\\n")
"""
BIG = MEMBER_BYTES_LIMIT


def nested(part: bytes, count: int) -> bytes:
    """A note whose data are very many small values; the backslash asks for a cleaning."""
    return (
        b'{"k":"note","v":{"process":[100,1],"at_ns":5,"kind":"x","data":{"a":"\\n","b":['
        + part * count
        + b"0]}}}\n"
    )


BOMBS = {
    "empty lines": lambda: b"\n" * (BIG - 1),
    "tiny lines": lambda: b"1\n" * (BIG // 2 - 1),
    "one line without an end": lambda: b" " * (8 * BIG),
    "lists": lambda: nested(b"[],", BIG // 3 - 100),
    "texts": lambda: nested(b'"a",', BIG // 4 - 100),
}


@pytest.mark.slow
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_member_that_inflates_to_very_much_is_read_in_bounded_memory(
    bomb: str, tmp_path: Path
) -> None:
    encoder = LineEncoder()
    header = encoder.header(Header(SCHEMA, "1.0", "box", MAIN, START_S, 1.8e9))
    path = tmp_path / "bomb.mpw"
    path.write_bytes(
        pack(header, START_S, START_S, is_key=False)
        + pack(encoder.line(small_job(START_S)), START_S, START_S, is_key=True)
        + pack(BOMBS[bomb](), START_S, START_S + 1, is_key=False)
    )
    assert path.stat().st_size < 1 << 22

    done = subprocess.run(
        [sys.executable, "-c", READER, str(path)], capture_output=True, text=True, check=True
    )

    used, *problems = done.stdout.splitlines()
    assert int(used) < MEMORY_BYTES_LIMIT
    assert 1 <= len(problems) <= 2
    assert all(problem.endswith(".") for problem in problems)
