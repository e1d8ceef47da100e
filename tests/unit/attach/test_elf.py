"""ELF files that are damaged, or made by a target's owner to harm the observer."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mpwatch.attach.native import elf
from mpwatch.attach.native.code_cave import TargetMemory, find_data
from mpwatch.attach.native.elf import Layout, Symbol
from mpwatch.attach.outcomes import Refused
from tests.builders.elf_files import (
    DYNAMIC_AT,
    FUNCTION,
    HASH_AT,
    PID,
    SEGMENT_AT,
    SIZE,
    VALUE,
    elf_file,
    placed,
)

EXAMPLES = int(os.environ.get("MPWATCH_FUZZ_EXAMPLES", "300"))
FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=EXAMPLES <= 300,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
NAMES = frozenset((FUNCTION, "Py_IsInitialized", "PyMutex_Lock"))
INPUTS = {"tried": 0}
READS_LIMIT = 4 + 3 * (4 + 3 * 256)
"""Of the headers, and for each of three names the table, and its symbols as far as they count."""


@pytest.fixture(autouse=True, scope="module")
def _print_inputs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Print how many inputs were tried, where that was asked for."""
    yield
    if "MPWATCH_FUZZ_EXAMPLES" in os.environ:
        capture = request.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            print(f"\n{INPUTS['tried']} inputs tried in {Path(__file__).name}")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each read of a file asked for."""
    counts: list[int] = []
    pread = os.pread

    def counted(fd: int, count: int, offset: int) -> bytes:
        counts.append(count)
        return pread(fd, count, offset)

    monkeypatch.setattr(os, "pread", counted)
    return counts


def read(folder: Path, content: bytes | bytearray) -> Layout | str:
    """The layout of a file, or why there is none."""
    module = placed(folder, content)
    try:
        return elf.layout(PID, module, NAMES, str(folder))
    except Refused as refused:
        return refused.reason


@pytest.mark.parametrize("is_gnu_table", [True, False])
def test_a_function_is_found_in_either_hash_table(tmp_path: Path, is_gnu_table: bool) -> None:
    found = read(tmp_path, elf_file(is_gnu_table))

    assert isinstance(found, Layout)
    assert found.symbols == {FUNCTION: Symbol(VALUE, SIZE)}
    assert [segment[4] for segment in found.segments] == [5, 6]


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize("style", ["gnu", "sysv"])
def test_the_functions_that_a_linker_exports_are_found(tmp_path: Path, style: str) -> None:
    path = tmp_path / "real.so"
    defined = [f"exported_{number}" for number in range(200)]
    text = "".join(f"int {name}(void) {{ return 1; }}\n" for name in defined)
    text += "extern int elsewhere(void); int calls(void) { return elsewhere(); }\n"
    command = [
        "cc",
        "-shared",
        "-fPIC",
        f"-Wl,--hash-style={style}",
        "-x",
        "c",
        "-",
        "-o",
        str(path),
    ]
    subprocess.run(command, input=text.encode(), check=True)
    module = placed(tmp_path, path.read_bytes())

    names = frozenset((*defined, "elsewhere", "missing"))
    found = elf.layout(PID, module, names, str(tmp_path))

    assert set(found.symbols) == set(defined)
    assert all(symbol.size for symbol in found.symbols.values())


@pytest.mark.parametrize(
    ("place", "form", "value", "reason"),
    [
        (0, "<I", 0, "it has another format"),
        (4, "<B", 1, "it is a 32-bit one"),
        (5, "<B", 2, "it is of an unknown kind"),
        (32, "<Q", 2**64 - 1, "it ends before byte 18446744073709551783"),
        (54, "<H", 0, "it is of an unknown kind"),
        (56, "<H", 0xFFFF, "it has 65535 program headers"),
        (DYNAMIC_AT + 8, "<Q", 2**63, "it does not contain the address 0x8000000000000001"),
        (HASH_AT + 8, "<I", 2**32 - 1, "it does not contain the address 0x800000408"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused_in_one_sentence(
    tmp_path: Path, place: int, form: str, value: int, reason: str
) -> None:
    content = elf_file()
    struct.pack_into(form, content, place, value)

    assert read(tmp_path, content) == f"lib.so is no readable ELF file: {reason}"


def test_a_chain_of_symbols_without_an_end_is_followed_only_so_far(
    tmp_path: Path, reads: list[int]
) -> None:
    content = elf_file()
    content[HASH_AT + 28 :] = bytes(800_000)  # hashes of other names, none marked as the last
    for segment in (SEGMENT_AT, SEGMENT_AT + 56):
        struct.pack_into("<2Q", content, segment + 32, len(content), len(content))

    found = read(tmp_path, content)

    assert isinstance(found, Layout)
    assert found.symbols == {}
    assert 256 < len(reads) <= READS_LIMIT


def test_a_huge_sparse_file_is_read_in_parts(tmp_path: Path, reads: list[int]) -> None:
    module = placed(tmp_path, elf_file())
    os.truncate(tmp_path / str(PID) / "root/lib.so", 1 << 40)

    assert FUNCTION in elf.layout(PID, module, NAMES, str(tmp_path)).symbols
    assert sum(reads) < 65536


@pytest.mark.timeout(20)
def test_a_named_pipe_at_the_path_of_a_loaded_file_is_not_waited_for(tmp_path: Path) -> None:
    module = placed(tmp_path, elf_file())
    path = tmp_path / str(PID) / "root/lib.so"
    path.unlink()
    os.mkfifo(path)

    with pytest.raises(Refused, match=r"^/lib.so cannot be read from here, or was replaced"):
        elf.layout(PID, module, NAMES, str(tmp_path))


@pytest.mark.slow
@FUZZ
@given(
    is_gnu_table=st.booleans(),
    end=st.none() | st.integers(0, 0x500),
    changes=st.lists(
        st.tuples(
            st.one_of(
                st.integers(0, 0x4FF),
                st.sampled_from([32, 54, 56, 0x48, 0x50, 0x60, 0x108, 0x118, 0x128, 0x218, 0x400]),
            ),
            st.one_of(
                st.binary(min_size=1, max_size=8),
                st.integers(0, 2**64 - 1).map(lambda number: number.to_bytes(8, "little")),
                st.sampled_from([b"\0" * 8, b"\xff" * 8, b"\xff" * 7 + b"\x7f", b"\x00\x05" * 4]),
            ),
        ),
        max_size=6,
    ),
)
def test_any_file_gives_a_layout_or_one_sentence(
    tmp_path: Path,
    reads: list[int],
    is_gnu_table: bool,
    end: int | None,
    changes: list[tuple[int, bytes]],
) -> None:
    INPUTS["tried"] += 1
    content = elf_file(is_gnu_table)
    for place, change in changes:
        content[place : place + len(change)] = change
    reads.clear()

    found = read(tmp_path, content[:end])

    assert len(reads) <= READS_LIMIT
    assert max(reads, default=0) <= 256 * 56
    if isinstance(found, str):
        assert "\n" not in found
    else:
        assert found.symbols.keys() <= NAMES
        assert_a_cave_is_found_or_refused(tmp_path, content[:end])


def assert_a_cave_is_found_or_refused(folder: Path, content: bytes | bytearray) -> None:
    """Where unused bytes are looked for goes by what the file says, and may be anywhere."""
    memory = TargetMemory(os.getpid())
    with closing(memory), suppress(Refused):
        assert find_data(PID, [placed(folder, content)], memory, str(folder)) > 0
