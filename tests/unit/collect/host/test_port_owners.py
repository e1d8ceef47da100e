from __future__ import annotations

import os
from pathlib import Path

import pytest

from mpwatch.collect.host.host import named_ports, port_owners
from mpwatch.model.host import PortOwner

HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  inode"


def row(port: int, inode: int, state: str = "0A") -> str:
    return f"   0: 0100007F:{port:04X} 00000000:0000 {state} 0:0 00:0 0 0 0 {inode} 1 0 100 0"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A job, 100, whose ranks are to meet on port 4000, and an orphan, 200, that listens on it."""
    made = {"100": "torchrun\0--master-port\0004000\0train.py", "200": "python\0old.py"}
    for pid, cmdline in made.items():
        (tmp_path / pid / "net").mkdir(parents=True)
        (tmp_path / pid / "fd").mkdir()
        (tmp_path / pid / "cmdline").write_text(cmdline)
        (tmp_path / pid / "environ").write_text("HOME=/root\0")
        (tmp_path / pid / "stat").write_text(f"{pid} (python) S 1 1 1")
        (tmp_path / pid / "net" / "tcp").write_text(f"{HEADER}\n{row(4000, 77)}\n{row(80, 78)}")
        (tmp_path / pid / "net" / "tcp6").write_text(HEADER)
    os.symlink("socket:[77]", tmp_path / "200" / "fd" / "3")
    os.symlink("socket:[78]", tmp_path / "200" / "fd" / "4")
    return tmp_path


def test_the_process_that_listens_on_a_port_the_job_names_is_found(proc: Path) -> None:
    assert port_owners(str(proc), 100) == (PortOwner(4000, 200, "python old.py", 1),)


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
