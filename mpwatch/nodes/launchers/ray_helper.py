"""The process that is connected to a Ray cluster, and carries bytes between pipes and its actors.

It is a process of its own, because Ray ends the process of a driver when its raylet has gone, takes
over its signals, and starts some dozens of threads. It ends when the control socket closes, and
Ray then ends its actors: they are not detached.

On the control socket, this process writes lines of JSON: `{"nodes": [...]}` or `{"problem": ...}`.
It reads lines `{"open": NODE_ID}`, each with three descriptors: what is to be given to the agent of
that node, where its output goes, and where its errors go.

Where mpwatch is not installed on the nodes, it sends an archive of compiled modules, so that a node
need not compile 250 of them for each agent, with the extension module of msgspec and py-spy. So it
fits only the minor version of Python and the kind of processor that it was made on;
`mpwatch.nodes.launchers.ray_actor` refuses others.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import io
import json
import logging
import marshal
import os
import socket
import sys
import zipfile
from collections.abc import Iterator, Sequence
from importlib.machinery import SourceFileLoader
from typing import Any

from mpwatch.collect.process.fds import raise_own_limit
from mpwatch.collect.process.py_spy import find_py_spy
from mpwatch.nodes.launchers import ray_actor
from mpwatch.nodes.wire.messages import CHUNK_BYTES

NAMESPACE = "mpwatch"
NODES_S = 2.0
"""Interval at which the nodes of the cluster are read."""
BEGIN_S = 90.0
"""How long an actor may take to start and to begin its agent. Ray itself gives the process of a
worker 60 s to report (`worker_register_timeout_seconds`, Ray 2.60); where the cpus of a node are
busy with the job, it takes most of them."""
END_S = 2.0
NO_BYTES = "The node sent something else than bytes."
LINE_BYTES = 4096
PACKAGES = ("mpwatch", "msgspec")
MODULES = ("pynvml",)
"""Left out where they are not installed: the agent does without."""
LEFT_OUT = frozenset(("mpwatch.demo", "mpwatch.tui", "mpwatch.attach"))
"""Parts of mpwatch that no agent imports."""
AS_SOURCE = ("mpwatch.hook",)
"""The version of a hook is a hash of its sources (`mpwatch.hook.wire.sources_version`)."""
EXTENSIONS = (".so",)
_UNCHECKED_HASH = (1).to_bytes(4, "little")
"""The flags of a compiled module that is never compared with its source (PEP 552)."""


def main(control: int, address: str, arguments: Sequence[str], command: str) -> int:
    """Serve until the control socket is closed.

    Args:
        control: Descriptor of the control socket.
        address: Of the cluster, as `ray.init` takes it.
        arguments: Those of the agents.
        command: The command of mpwatch on the nodes; if empty, mpwatch is sent there.
    """
    channel = socket.socket(fileno=control)
    raise_own_limit()  # three descriptors of each node arrive here; those beyond it are lost
    # What Ray prints is for nobody; standard error is kept by the head for the case of a crash.
    os.dup2(2, 1)
    try:
        cluster = _Cluster(address, arguments, command)
    except Exception as error:  # noqa: BLE001 - Ray raises many kinds, and all are one sentence
        channel.sendall(_line({"problem": _sentence(error)}))
        return 1
    channel.setblocking(False)
    asyncio.run(_serve(cluster, channel))
    cluster.leave()
    return 0


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _sentence(error: BaseException) -> str:
    """The first line of an error of Ray, whose messages have dozens."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


class _Cluster:
    """The connection to Ray: its nodes, and one actor for each that was asked for."""

    def __init__(self, address: str, arguments: Sequence[str], command: str) -> None:
        import ray

        self._ray: Any = ray
        self._request = json.dumps({"arguments": list(arguments), "command": command}).encode()
        self._has_command = bool(command)
        ray.init(
            address=address,
            namespace=NAMESPACE,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
        ray.cloudpickle.register_pickle_by_value(ray_actor)
        self._archive: Any = None
        self._actors: dict[str, Any] = {}

    def nodes(self) -> list[dict[str, Any]]:
        """All nodes that Ray knows, those that have left included."""
        return [
            {
                "id": node["NodeID"],
                "alive": node["Alive"],
                "host": node.get("NodeManagerHostname") or node.get("NodeManagerAddress") or "",
                "is_head": "node:__internal_head__" in node.get("Resources", {}),
                "reason": str(node.get("DeathReason", 0)),
                "told": str(node.get("DeathReasonMessage", "")),
            }
            for node in self._ray.nodes()
        ]

    def actor(self, node: str) -> Any:
        """The actor of a node, which Ray starts again if it dies."""
        actor = self._actors.get(node)
        if actor is None:
            actor = self._actors[node] = self._new_actor(node)
        return actor

    def _new_actor(self, node: str) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        if self._archive is None:
            self._archive = self._ray.put(b"" if self._has_command else archive())
        kind = self._ray.remote(ray_actor.MpwatchNode).options(
            num_cpus=0,
            max_restarts=-1,
            max_task_retries=0,
            max_concurrency=4,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        )
        return kind.remote(self._archive, ray_actor.kind_of_python().encode())

    def forget(self, node: str) -> None:
        """End the actor of a node for good."""
        actor = self._actors.pop(node, None)
        if actor is not None:
            with contextlib.suppress(Exception):
                self._ray.kill(actor)

    async def begin(self, node: str) -> object:
        """Start the agent of a node; what the node answers, not checked."""
        return await self.actor(node).begin.remote(self._request)

    def leave(self) -> None:
        """End all actors and disconnect."""
        for node in list(self._actors):
            self.forget(node)
        self._ray.shutdown()


async def _serve(cluster: _Cluster, channel: socket.socket) -> None:
    """Tell the nodes, and carry bytes for those that are asked for."""
    news = asyncio.create_task(_tell_nodes(cluster, channel))
    carriers: set[asyncio.Task[None]] = set()
    try:
        async for node, descriptors in _requests(channel):
            task = asyncio.create_task(carry(cluster, node, descriptors))
            carriers.add(task)
            task.add_done_callback(carriers.discard)
    finally:
        news.cancel()
        if carriers:
            await asyncio.wait(carriers, timeout=END_S)


async def _tell_nodes(cluster: _Cluster, channel: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    told: list[dict[str, Any]] | None = None
    while True:
        nodes = await asyncio.to_thread(cluster.nodes)
        if nodes != told:
            told = nodes
            await loop.sock_sendall(channel, _line({"nodes": nodes}))
        await asyncio.sleep(NODES_S)


async def _requests(channel: socket.socket) -> Any:
    """The nodes that are asked for with their descriptors, until the socket is closed."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(channel.fileno(), ready.set)
    text, waiting = b"", []
    while True:
        await ready.wait()
        ready.clear()
        try:
            data, descriptors, _, _ = socket.recv_fds(channel, LINE_BYTES, 30)
        except BlockingIOError:
            continue
        except OSError:
            return
        waiting += descriptors
        if not data:
            return
        *lines, text = (text + data).split(b"\n")
        for line in lines:
            yield json.loads(line)["open"], tuple(waiting[:3])
            del waiting[:3]
        ready.set()  # there may be more than one read has taken


async def carry(cluster: _Cluster, node: str, descriptors: tuple[int, ...]) -> None:
    """Carry the bytes of one agent until it ends, or the head closes its input."""
    given, output, errors = descriptors
    told = ""
    try:
        answer = await asyncio.wait_for(cluster.begin(node), BEGIN_S)
        told = answer.decode("utf-8", "replace") if type(answer) is bytes else NO_BYTES
        if not told:
            told = await _both_ways(cluster, node, given, output)
    except (TimeoutError, asyncio.TimeoutError):  # two classes before Python 3.11
        told = f"Ray has not started an actor on this node within {BEGIN_S:.0f} s."
        cluster.forget(node)
    except Exception as error:  # noqa: BLE001 - Ray raises many kinds, and all are one sentence
        told = f"Ray: {_sentence(error)}"
        if not isinstance(error, cluster._ray.exceptions.ActorUnavailableError):
            cluster.forget(node)
    finally:
        with contextlib.suppress(OSError):
            os.write(errors, told.encode("utf-8", "replace")[:LINE_BYTES])
        for descriptor in descriptors:
            os.close(descriptor)


async def _both_ways(cluster: _Cluster, node: str, given: int, output: int) -> str:
    """Why the agent has ended; an empty string if the head has ended it."""
    actor = cluster.actor(node)
    to_agent = asyncio.create_task(_give(actor, given))
    from_agent = asyncio.create_task(_take(actor, output))
    done, pending = await asyncio.wait((to_agent, from_agent), return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    told = from_agent.result() if from_agent in done else ""
    with contextlib.suppress(Exception):
        await asyncio.wait_for(actor.end.remote(), END_S)
    return told


async def _give(actor: Any, given: int) -> None:
    """Carry what the head writes; one call at a time, so that the order stays."""
    loop = asyncio.get_running_loop()
    os.set_blocking(given, False)
    reader = asyncio.StreamReader(CHUNK_BYTES)
    file = os.fdopen(os.dup(given), "rb", 0)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    try:
        while data := await reader.read(CHUNK_BYTES):
            await actor.write.remote(data)
    finally:
        transport.close()


async def _take(actor: Any, output: int) -> str:
    """Carry what the agent writes; nothing more is asked for before the head has taken it."""
    loop = asyncio.get_running_loop()
    os.set_blocking(output, False)
    while True:
        message = await actor.read.remote()
        if type(message) is not bytes:
            return NO_BYTES
        kind, data = message[:1], memoryview(message)[1:]
        if kind == ray_actor.END:
            return bytes(data).decode("utf-8", "replace")
        while data:
            try:
                data = data[os.write(output, data) :]
            except BlockingIOError:
                is_writable = loop.create_future()
                loop.add_writer(output, _resolve, is_writable)
                try:
                    await is_writable
                finally:
                    loop.remove_writer(output)
            except BrokenPipeError:
                return ""


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def archive() -> bytes:
    """A zip of the modules that an agent needs, and of `bin/py-spy` where it is installed.

    Raises:
        OSError: A file cannot be read.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for name, data in _contents():
            file.writestr(name, data)
    return buffer.getvalue()


def _contents() -> Iterator[tuple[str, bytes]]:
    """Names within the archive, with their bytes."""
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            yield from _of_package(package, folder)
    for module in MODULES:
        spec = importlib.util.find_spec(module)
        if spec is not None and spec.origin is not None:
            yield f"{module}.pyc", _compiled(spec.origin, module)
    py_spy = find_py_spy()
    if py_spy is not None:
        yield "bin/py-spy", _read(py_spy)


def _of_package(package: str, top: str) -> Iterator[tuple[str, bytes]]:
    for folder, folders, files in os.walk(top):
        inner = os.path.relpath(folder, top)
        path = package if inner == "." else f"{package}/{inner}"
        module = path.replace("/", ".")
        folders[:] = [
            each for each in folders if each != "__pycache__" and f"{module}.{each}" not in LEFT_OUT
        ]
        is_source = module.startswith(AS_SOURCE)
        for each in files:
            name = os.path.join(folder, each)
            if each.endswith(".py") and not is_source:
                yield f"{path}/{each}c", _compiled(name, f"{module}.{each.removesuffix('.py')}")
            elif each.endswith((".py", *EXTENSIONS)):
                yield f"{path}/{each}", _read(name)


def _compiled(path: str, module: str) -> bytes:
    """A module as the bytes of a `.pyc` that needs no source."""
    code = SourceFileLoader(module, path).get_code(module)
    return importlib.util.MAGIC_NUMBER + _UNCHECKED_HASH + bytes(8) + marshal.dumps(code)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]), sys.argv[4]))
