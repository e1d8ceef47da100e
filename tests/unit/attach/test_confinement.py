"""What counts as confined more tightly than the root of a job, from a made-up /proc."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mpwatch.attach import inject_tree

ROOT, OTHER = 10, 11
Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(
        pid: int,
        *,
        mode: int = 0,
        filters: int | None = 0,
        uids: str = "1000 1000 1000 1000",
        namespaces: dict[str, int] | None = None,
        label: bytes | None = b"docker-default (enforce)\n",
        no_new_privs: int | None = 0,
        bounding: str = "00000000a80425fb",  # of a container by Docker
    ) -> None:
        folder = tmp_path / str(pid)
        (folder / "ns").mkdir(parents=True)
        (folder / "attr").mkdir()
        lines = ["Name:\tpython", f"Uid:\t{uids}", f"Seccomp:\t{mode}"]
        lines += [] if filters is None else [f"Seccomp_filters:\t{filters}"]
        lines += [] if no_new_privs is None else [f"NoNewPrivs:\t{no_new_privs}"]
        lines += [f"CapBnd:\t{bounding}"]
        (folder / "status").write_text("\n".join(lines) + "\n")
        for name, inode in {"user": 1, "pid": 2, "mnt": 3, **(namespaces or {})}.items():
            if inode:
                (folder / "ns" / name).symlink_to(f"{name}:[{inode}]")
        if label is not None:
            (folder / "attr/current").write_bytes(label)

    return write


def reason(tmp_path: Path) -> str | None:
    proc = str(tmp_path)
    return inject_tree.why_too_confined(
        inject_tree.read_confinement(OTHER, proc), inject_tree.read_confinement(ROOT, proc)
    )


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (
            {"label": b"sandbox (enforce)\n"},
            "another security label than the root process (sandbox",
        ),
        ({"label": b"system_u:system_r:svirt_t:s0:c1\0"}, "another security label"),
        (
            {"uids": "1001 1001 1001 1001"},
            "another user (uid 1001) than the root process (uid 1000)",
        ),
        ({"uids": "1000 1001 1000 1001"}, "another user (uid 1000/1001)"),
        ({"namespaces": {"user": 9}}, "another user namespace"),
        ({"namespaces": {"pid": 9}}, "another pid namespace"),
        ({"namespaces": {"mnt": 9}}, "another mnt namespace"),
        ({"mode": 2, "filters": 1}, "a system-call filter (seccomp)"),
        ({"mode": 2, "filters": None}, "a system-call filter (seccomp)"),
        ({"mode": 1}, "a system-call filter (seccomp)"),
    ],
)
def test_a_process_that_is_confined_more_tightly_is_left_out_with_its_reason(
    tmp_path: Path, write: Write, what: dict[str, object], words: str
) -> None:
    write(ROOT)
    write(OTHER, **what)
    assert words in (reason(tmp_path) or "")


@pytest.mark.parametrize(
    "what", [{}, {"label": None}, {"label": b""}, {"namespaces": {"pid": 0, "net": 7}}]
)
def test_one_that_is_confined_alike_or_hides_how_is_not(
    tmp_path: Path, write: Write, what: dict[str, object]
) -> None:
    write(ROOT)
    write(OTHER, **what)
    assert reason(tmp_path) is None


@pytest.mark.parametrize(("filters", "is_left_out"), [(2, False), (3, True)])
def test_the_filters_of_a_container_are_the_measure(
    tmp_path: Path, write: Write, filters: int, is_left_out: bool
) -> None:
    write(ROOT, mode=2, filters=2)
    write(OTHER, mode=2, filters=filters)
    assert (reason(tmp_path) is not None) is is_left_out


@pytest.mark.parametrize(
    ("what", "is_left_out"),
    [
        ({}, False),  # a process without these rights cannot have added a filter
        ({"no_new_privs": 1}, True),
        ({"no_new_privs": None}, True),  # before Linux 4.10
        ({"bounding": "000001ffffffffff"}, True),
        ({"bounding": "nonsense"}, True),
        ({"namespaces": {"user": 0}}, True),  # hidden: it may have all rights in one of its own
        ({"mode": 0}, False),
    ],
)
def test_where_the_kernel_does_not_count_filters_one_that_may_have_more_is_left_out(
    tmp_path: Path, write: Write, what: dict[str, object], is_left_out: bool
) -> None:
    """Linux before 5.9."""
    write(ROOT, mode=2, filters=None)
    write(OTHER, **{"mode": 2, "filters": None, **what})
    found = reason(tmp_path)
    assert (found is not None) is is_left_out
    if found is not None:
        assert "this kernel does not say whether it has more of them than the root" in found


def test_a_label_of_another_process_cannot_move_the_cursor(tmp_path: Path, write: Write) -> None:
    write(ROOT)
    write(OTHER, label=b"x\x1b[2Jy\n")
    found = reason(tmp_path)
    assert found is not None
    assert found.isprintable()
