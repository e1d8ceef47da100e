from __future__ import annotations

import os
from pathlib import Path

import pytest

from mpwatch.collect.host.host import named_ports, port_owners
from mpwatch.model.host import PortOwner

HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  inode"


def row(port: int, inode: int, state: str = "0A") -> str:
    return f"   0: 0100007F:{port:04X} 00000000:0000 {state} 0:0 00:0 0 0 0 {inode} 1 0 100 0"


def stat(pid: int, name: str, parent: int, session: int) -> str:
    return f"{pid} ({name}) S {parent} 1 {session}" + " 0" * 46


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A job, 100, whose ranks are to meet on port 4000, and an orphan, 200, that listens on it."""
    made = {"100": "torchrun\0--master-port\0004000\0train.py", "200": "python\0old.py"}
    for pid, cmdline in made.items():
        (tmp_path / pid / "net").mkdir(parents=True)
        (tmp_path / pid / "fd").mkdir()
        (tmp_path / pid / "cmdline").write_text(cmdline)
        (tmp_path / pid / "environ").write_text("HOME=/root\0")
        (tmp_path / pid / "stat").write_text(stat(int(pid), "python", 1, 150))
        (tmp_path / pid / "net" / "tcp").write_text(f"{HEADER}\n{row(4000, 77)}\n{row(80, 78)}")
        (tmp_path / pid / "net" / "tcp6").write_text(HEADER)
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "stat").write_text(stat(1, "torchrun", 0, 1))
    os.symlink("socket:[77]", tmp_path / "200" / "fd" / "3")
    os.symlink("socket:[78]", tmp_path / "200" / "fd" / "4")
    return tmp_path


def test_the_process_that_listens_on_a_port_the_job_names_is_found(proc: Path) -> None:
    assert port_owners(str(proc), 100) == (
        PortOwner(4000, 200, "python old.py", 1, is_orphan=True),
    )


@pytest.mark.parametrize(
    ("init", "parent", "session", "environ", "is_orphan"),
    [
        ("systemd", 1, 150, "", True),
        ("torchrun", 1, 150, "", True),
        ("tini", 1, 200, "TORCHELASTIC_RUN_ID=x", True),
        ("torchrun", 1, 200, "TORCHELASTIC_RUN_ID=x", False),
        ("systemd", 1, 200, "", False),
        ("tini", 1, 1, "", False),
        ("torchrun", 1, 0, "TORCHELASTIC_RUN_ID=x", False),
        ("systemd", 90, 150, "TORCHELASTIC_RUN_ID=x", False),
    ],
)
def test_an_orphan_is_told_from_a_child_of_process_1(
    proc: Path, init: str, parent: int, session: int, environ: str, is_orphan: bool
) -> None:
    (proc / "1" / "stat").write_text(stat(1, init, 0, 1))
    (proc / "200" / "stat").write_text(stat(200, "python", parent, session))
    (proc / "200" / "environ").write_text(environ)

    (owner,) = port_owners(str(proc), 100) or ()

    assert owner.is_orphan is is_orphan


def test_connections_and_other_ports_do_not_count(proc: Path) -> None:
    (proc / "100" / "net" / "tcp").write_text(f"{HEADER}\n{row(4000, 77, '01')}\n{row(80, 78)}")

    assert port_owners(str(proc), 100) == ()


def test_tables_that_cannot_be_read_are_unknown(proc: Path) -> None:
    (proc / "100" / "net" / "tcp").unlink()

    assert port_owners(str(proc), 100) is None


@pytest.mark.parametrize(
    ("cmdline", "environ", "ports"),
    [
        ("python\0train.py", "A=1", {29500}),
        ("python\0train.py", "A=1\0MASTER_PORT=4001\0B=2", {29500, 4001}),
        ("torchrun\0--master_port=4002\0t.py", "", {29500, 4002}),
        ("torchrun\0--rdzv-endpoint=localhost:4003\0t.py", "", {29500, 4003}),
        ("torchrun\0--rdzv_endpoint\0[::1]:4004\0t.py", "MASTER_PORT=x", {29500, 4004}),
    ],
)
def test_a_port_is_named_by_the_environment_or_by_an_option(
    proc: Path, cmdline: str, environ: str, ports: set[int]
) -> None:
    (proc / "100" / "cmdline").write_text(cmdline)
    (proc / "100" / "environ").write_text(environ)

    assert named_ports(str(proc), 100) == ports
