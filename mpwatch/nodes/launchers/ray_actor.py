"""What runs on a node of a Ray cluster: an actor that starts the agent and carries its bytes.

Ray sends this class to the nodes by value, so that mpwatch need not be installed there: nothing but
the standard library is imported here. What the methods are given and return is bytes or nothing, so
that Ray pickles no other value of mpwatch. The agent is a process of its own and not a thread of
the actor, because it ends with its input: when Ray kills the actor, nothing is left.
"""

import contextlib
import fcntl
import importlib.util
import json
import os
import platform
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time

READ_BYTES = 1 << 16
"""The most that one call returns: what is shorter than 100 kB travels within Ray's reply and not
through the object store (`max_direct_call_object_size`, Ray 2.60)."""
READ_S = 5.0
"""How long a node waits for output of its agent before it answers that there is none."""
END_S = 2.0
"""How long the agent may take to end once its input is closed."""
RAYLET_S = 2.0
"""Interval at which an actor checks whether its raylet runs. Ray ends the workers of a raylet that
is gone, but takes one for running that was killed and is still a zombie (Ray 2.60): in a container,
the first process often reaps nothing."""
EXIT_S = 1.0
COMPLAINTS_BYTES = 4096
FOLDER = "mpwatch-node-"
LOCK = "lock"
DATA, WAIT, END = b"d", b"w", b"e"
"""The first byte of what `read` returns: bytes of the agent follow; nothing has arrived; the agent
has ended, and a sentence follows."""

RUN = """\
import fcntl, os, shutil, sys, tempfile, zipfile
child = os.fork()
if child:
    for descriptor in (0, 1, 2, int(sys.argv[1])):
        os.close(descriptor)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)
folder = tempfile.mkdtemp(prefix="mpwatch-node-")
try:
    lock = os.open(os.path.join(folder, "lock"), os.O_RDONLY | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        zipfile.ZipFile(file).extractall(folder)
    if os.path.exists(os.path.join(folder, "bin", "py-spy")):
        os.chmod(os.path.join(folder, "bin", "py-spy"), 0o700)
    sys.path.insert(0, folder)
    sys.argv = ["mpwatch", *sys.argv[2:]]
    from mpwatch.cli import main
    status = main()
finally:
    shutil.rmtree(folder, ignore_errors=True)
sys.exit(status)
"""
"""Unpacks an archive, of which the descriptor is given, to a folder of its own, runs the agent from
there, and removes the folder at the end. The lock says that it is in use.

The agent is a child of the process that Ray's worker starts: a worker that exits kills its children
with SIGKILL (`kill_child_processes_on_worker_exit`, Ray 2.60), which would leave the folder. The
agent then reads the end of its input. It has a session of its own for the same reason.
"""


def kind_of_python() -> str:
    """What an archive of compiled modules depends on."""
    return f"{platform.machine()} {importlib.util.MAGIC_NUMBER.hex()}"


class MpwatchNode:
    """The agent of one node: `begin`, then `read` and `write` at the same time, then `end`."""

    def __init__(self, archive: bytes, kind: bytes) -> None:
        """Keep the archive.

        Args:
            archive: See `mpwatch.nodes.launchers.ray_helper`; empty where a command is given.
            kind: The Python that it is for, see `kind_of_python`.
        """
        self._archive = archive
        self._kind = kind.decode()
        self._agent: subprocess.Popen[bytes] | None = None
        self._complaints = b""
        self._lock = threading.Lock()
        self._raylet = os.environ.get("RAY_RAYLET_PID") or str(os.getppid())
        threading.Thread(target=self._end_with_raylet, name="mpwatch-raylet", daemon=True).start()

    def begin(self, request: bytes) -> bytes:
        """Start the agent, after the end of the one before.

        Args:
            request: JSON: `arguments` of mpwatch, and its `command` on this node, for a shell;
                without one the archive.

        Returns:
            Why it cannot be started, in one sentence of UTF-8, or nothing.
        """
        asked = json.loads(request)
        return self._begin(asked["arguments"], asked["command"]).encode("utf-8", "replace")

    def _begin(self, arguments: list[str], command: str) -> str:
        with self._lock:
            self._end()
            arguments = [*arguments, f"--raylet={self._raylet}"]
            if command:
                return self._start(["sh", "-c", f'exec {command} "$@"', "sh", *arguments])
            if self._kind != kind_of_python():
                return (
                    f"The node has Python {platform.python_version()} on {platform.machine()}, "
                    "which is another kind than here: give the command of mpwatch there by --agent."
                )
            _remove_unused()
            archive = os.memfd_create("mpwatch")
            try:
                with os.fdopen(os.dup(archive), "wb") as file:
                    file.write(self._archive)
                os.lseek(archive, 0, os.SEEK_SET)
                run = [sys.executable, "-I", "-c", RUN, str(archive)]
                return self._start([*run, *arguments], archive)
            finally:
                os.close(archive)

    def write(self, data: bytes) -> None:
        """Give the agent its input; waits until it has taken it."""
        agent = self._agent
        if agent is not None and agent.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                agent.stdin.write(data)

    def read(self) -> bytes:
        """What the agent has sent, at most `READ_BYTES`; waits for it for `READ_S`."""
        agent = self._agent
        if agent is None or agent.stdout is None or agent.stderr is None:
            return END + b"No agent was started."
        end_s = time.monotonic() + READ_S
        while True:
            left_s = max(0.0, end_s - time.monotonic())
            streams = [agent.stdout, agent.stderr]
            readable, _, _ = select.select(streams, [], [], left_s)
            if agent.stderr in readable:
                self._complaints += os.read(agent.stderr.fileno(), READ_BYTES)
                self._complaints = self._complaints[-COMPLAINTS_BYTES:]
            if agent.stdout in readable:
                data = os.read(agent.stdout.fileno(), READ_BYTES)
                return DATA + data if data else END + self._last_words(agent)
            if left_s <= 0:
                return WAIT
            if readable:
                time.sleep(0.01)

    def end(self) -> None:
        """End the agent."""
        with self._lock:
            self._end()

    def _end_with_raylet(self) -> None:
        """End the agent and this process once the raylet has ended."""
        began = _began(self._raylet)
        if began is None:
            return  # its number is that of another pid namespace
        while _began(self._raylet) == began:
            time.sleep(RAYLET_S)
        with self._lock:
            self._end()
        os._exit(1)

    def _start(self, command: list[str], *descriptors: int) -> str:
        self._complaints = b""
        try:
            self._agent = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
                pass_fds=descriptors,
            )
        except OSError as error:
            return f"{command[0]} cannot be started: {error.strerror}."
        return ""

    def _end(self) -> None:
        agent, self._agent = self._agent, None
        if agent is None:
            return
        if agent.stdin is not None:
            with contextlib.suppress(OSError):
                agent.stdin.close()
        try:
            agent.wait(END_S)
        except subprocess.TimeoutExpired:
            agent.kill()
            agent.wait()
        for stream in (agent.stdout, agent.stderr):
            if stream is not None:
                stream.close()

    def _last_words(self, agent: "subprocess.Popen[bytes]") -> bytes:
        """How the agent ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            agent.wait(EXIT_S)
        if agent.stderr is not None:
            os.set_blocking(agent.stderr.fileno(), False)
            with contextlib.suppress(OSError):
                self._complaints += os.read(agent.stderr.fileno(), READ_BYTES)
        code = agent.returncode
        how = f"by signal {-code}" if code is not None and code < 0 else f"with status {code}"
        lines = [line for line in self._complaints.split(b"\n") if line.strip()]
        return b": ".join([f"The agent ended {how}".encode(), *lines[-1:]])


def _began(pid: str) -> "bytes | None":
    """When a process was started, in ticks since the boot; `None` if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19]


def _remove_unused() -> None:
    """Remove folders of agents that were killed; one that is being filled is at least new."""
    top = tempfile.gettempdir()
    for name in os.listdir(top):
        folder = os.path.join(top, name)
        try:
            if not name.startswith(FOLDER) or os.stat(folder).st_uid != os.geteuid():
                continue
            if time.time() - os.stat(folder).st_mtime < 60:
                continue
            lock = os.open(os.path.join(folder, LOCK), os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        finally:
            os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)
