"""An imitated procfs: the folders and files of the kernel in a temporary directory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpwatch.collect.process import fds
from mpwatch.hook import wire
from tests.builders.hook_server import ObservedHooks

THIS_UID = os.getuid()


class FakeProc:
    """Creates processes in a directory that collectors read as `/proc`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._last_pid = 100
        self.write("loadavg", "0.25 0.20 0.10 2/300 100\n")
        self.write("meminfo", "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:  400 kB\n")
        self.write("stat", "cpu  1 2 3\nbtime 1000\n")
        self.write("sys/vm/max_map_count", "65530\n")
        self.write("sys/kernel/threads-max", "1000\n")
        self.write("self/mountinfo", "")
        self.write("self/status", f"CapEff:\t{0:016x}\n")
        self.write("thread-self/children", "")

    def __str__(self) -> str:
        return str(self.root)

    def write(self, path: str, text: str | bytes) -> None:
        """Put a file there."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)

    def process(
        self,
        pid: int,
        parent: int = 1,
        name: str | bytes = "python",
        cmdline: tuple[str, ...] = ("python", "train.py"),
        *,
        state: str = "S",
        start: int | None = None,
        group: int = 500,
        exe: str | None = "/usr/bin/python3.11",
        environ: str = "",
        uid: int = THIS_UID,
        ns_pids: tuple[int, ...] = (),
        threads: int = 1,
        code: int = 0,
        maps: str = "",
        flags: int = 0,
    ) -> None:
        """Make a process with its main thread; `start` is its pid in ticks unless said."""
        start = pid if start is None else start
        stat = self.stat(pid, parent, name, state, start, group, threads, code, flags=flags)
        self.write(f"{pid}/stat", stat)
        self.write(f"{pid}/cmdline", "\0".join(cmdline) + "\0" if cmdline else "")
        self.write(f"{pid}/environ", environ)
        chain = "\t".join(map(str, (pid, *ns_pids)))
        self.write(
            f"{pid}/status",
            f"Name:\tx\nTgid:\t{pid}\nTracerPid:\t0\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t{uid}\t{uid}\t{uid}\t{uid}\n"
            f"NSpid:\t{chain}\nVmSize:\t90 kB\nRssAnon:\t30 kB\nRssShmem:\t12 kB\n"
            f"SigPnd:\t{0:016x}\nSigCgt:\t0000000000000002\n"
            "Cpus_allowed:\t0000000f\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t3\n",
        )
        self.write(
            f"{pid}/limits", "Max open files            1024                 4096      files\n"
        )
        self.write(f"{pid}/oom_score_adj", "0\n")
        self.write(f"{pid}/cgroup", "0::/\n")
        self.write(f"{pid}/maps", maps)
        self.write(f"{pid}/io", "rchar: 10\nwchar: 20\n")
        self.write(
            f"{pid}/smaps_rollup",
            "Rss: 100 kB\nPss: 60 kB\nShared_Clean: 20 kB\nShared_Dirty: 0 kB\n"
            "Private_Clean: 10 kB\nPrivate_Dirty: 30 kB\nSwap: 0 kB\n",
        )
        (self.root / f"{pid}/fd").mkdir(exist_ok=True)
        if exe is not None and not (self.root / f"{pid}/exe").is_symlink():
            (self.root / f"{pid}/exe").symlink_to(exe)
        self.thread(pid, pid, name, state, start)
        self._announce(pid, parent)

    def thread(
        self,
        pid: int,
        tid: int,
        name: str | bytes = "python",
        state: str = "S",
        start: int = 0,
        *,
        syscall: str = "running\n",
        wchan: str = "0",
        counters: str = "10 20 30\n",
        children: str = "",
    ) -> None:
        """Make a thread."""
        folder = f"{pid}/task/{tid}"
        self.write(f"{folder}/stat", self.stat(tid, 1, name, state, start))
        self.write(f"{folder}/syscall", syscall)
        self.write(f"{folder}/wchan", wchan)
        self.write(f"{folder}/schedstat", counters)
        self.write(f"{folder}/status", self.root.joinpath(f"{pid}/status").read_bytes())
        self.write(f"{folder}/children", children)

    def fd(self, pid: int, number: int, target: str) -> None:
        """Open a descriptor."""
        (self.root / f"{pid}/fd/{number}").symlink_to(target)

    def end(self, pid: int) -> None:
        """Remove a process, as the kernel does when its parent has reaped it."""
        import shutil

        shutil.rmtree(self.root / str(pid))

    @staticmethod
    def stat(
        pid: int,
        parent: int,
        name: str | bytes = "python",
        state: str = "S",
        start: int = 0,
        group: int = 500,
        threads: int = 1,
        code: int = 0,
        ticks: int = 5,
        flags: int = 0,
        environment_at: int = 0,
        faults: int = 11,
        cpu: int = 0,
    ) -> bytes:
        """A stat line with all 52 fields."""
        raw = name.encode() if isinstance(name, str) else name
        head = (
            f"{state} {parent} {group} 600 0 -1 {flags} {faults} 0 12 0 {ticks} "
            f"0 0 0 20 0 {threads} 0 {start} "
        )
        places = f"{environment_at} {environment_at + 512 * bool(environment_at)} "
        rest = "1000 25 " + "0 " * 14 + f"{cpu} " + "0 " * 10 + places + str(code)
        return str(pid).encode() + b" (" + raw + b") " + (head + rest).encode() + b"\n"

    def _announce(self, pid: int, parent: int) -> None:
        """Record a start where the kernel does: in `loadavg` and the parent's `children`."""
        self.write("loadavg", f"0.25 0.20 0.10 2/300 {pid}\n")
        listed = self.root / f"{parent}/task/{parent}/children"
        if listed.exists():
            listed.write_text(f"{listed.read_text()}{pid} ")


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeProc:
    """A procfs without processes; descriptors are counted by listing, since `st_size` differs."""
    monkeypatch.setattr(fds, "count", lambda root, pid, *_: len(os.listdir(f"{root}/{pid}/fd")))
    root = tmp_path / "proc"
    root.mkdir()
    return FakeProc(root)


@pytest.fixture
def observed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObservedHooks]:
    """An observer that knows one runtime directory: others change as other programs have hooks."""
    made = ObservedHooks(tmp_path)
    monkeypatch.setattr(wire, "runtime_candidates", lambda uid, runtime: (str(made.folder),))
    yield made
    made.clients.close()
    for hook in made.hooks:
        hook.close()
