"""Servers of which threads or coroutines do not answer, and healthy ones that look the same.

Usage: `stuck_servers.py CASE`. Prints `ready` once its processes have started.
"""

import asyncio
import multiprocessing
import socket
import socketserver
import struct
import sys
import threading
import time
from multiprocessing.connection import Client, Listener

FORK = multiprocessing.get_context("fork")
LONG_S = 600.0
KEY = b"stuck"


def ready() -> None:
    print("ready", flush=True)


def read_exactly(connection: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(count - len(parts))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


class Measuring(socketserver.BaseRequestHandler):
    """Answers each message, whose length stands before it, with its size."""

    def handle(self) -> None:
        while True:
            (length,) = struct.unpack("!H", read_exactly(self.request, 2))
            size = len(read_exactly(self.request, length))
            self.request.sendall(struct.pack("!H", size))


class MeasuringServer(socketserver.ThreadingTCPServer):
    daemon_threads = True


def measure(address: tuple[str, int], surplus: int) -> None:
    with socket.create_connection(address) as connection:
        for _ in range(3):
            ask(connection, b"pixels", 0)
        ask(connection, b"pixels", surplus)


def ask(connection: socket.socket, data: bytes, surplus: int) -> bytes:
    connection.sendall(struct.pack("!H", len(data) + surplus) + data)
    return read_exactly(connection, 2)


def serve_sizes(server: MeasuringServer) -> None:
    server.serve_forever()


def wrong_length() -> None:
    """A client announces more than it sends; its server's thread waits for the rest."""
    with MeasuringServer(("127.0.0.1", 0), Measuring) as server:
        FORK.Process(target=serve_sizes, args=(server,), daemon=True).start()
        asking = FORK.Process(target=measure, args=(server.server_address, 2), daemon=True)
        asking.start()
        ready()
        asking.join()


class Grader:
    """Its results are to be announced by another thread, which has ended."""

    def __init__(self) -> None:
        self.graded = threading.Event()

    def announce(self) -> None:
        self.graded.set()

    def grade(self) -> str:
        self.graded.wait()
        return "good"


def serve_grades(listener: Listener) -> None:
    grader = Grader()
    while True:
        connection = listener.accept()
        threading.Thread(target=answer, args=(grader, connection), daemon=True).start()


def answer(grader: Grader, connection) -> None:
    while True:
        connection.recv()
        connection.send(grader.grade())


def ask_for_a_grade(address) -> None:
    with Client(address, authkey=KEY) as connection:
        connection.send("essay")
        print(connection.recv())


def unset_event() -> None:
    """The thread of a server that has a connection waits for what no other one sets."""
    with Listener(("127.0.0.1", 0), authkey=KEY) as listener:
        FORK.Process(target=serve_grades, args=(listener,), daemon=True).start()
        asking = FORK.Process(target=ask_for_a_grade, args=(listener.address,), daemon=True)
        asking.start()
        ready()
        asking.join()


class Shelf:
    """Each reply takes a slot, and a second one for a part of it."""

    def __init__(self, count: int) -> None:
        self.slots = asyncio.Semaphore(count)

    async def reply(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            async with self.slots:
                part = await self.part()
            writer.write(part)
            await writer.drain()

    async def part(self) -> bytes:
        await asyncio.sleep(0.2)
        async with self.slots:
            return b"part\n"


async def serve_parts(own: socket.socket, count: int) -> None:
    shelf = Shelf(count)
    server = await asyncio.start_server(shelf.reply, sock=own)
    async with server:
        await server.serve_forever()


def run_parts(own: socket.socket, count: int) -> None:
    asyncio.run(serve_parts(own, count))


def read_part(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection:
        connection.sendall(b"part\n")
        connection.makefile("rb").readline()


def nested_slots() -> None:
    """All coroutines of a server hold a slot of a semaphore, and wait for a second one."""
    own = socket.create_server(("127.0.0.1", 0))
    FORK.Process(target=run_parts, args=(own, 2), daemon=True).start()
    asking = [
        FORK.Process(target=read_part, args=(own.getsockname(),), daemon=True) for _ in range(3)
    ]
    for each in asking:
        each.start()
    ready()
    for each in asking:
        each.join()


class Publishing(socketserver.BaseRequestHandler):
    """Keeps the connection of a subscriber, and reads what it may ask for."""

    server: "Publisher"

    def handle(self) -> None:
        self.server.subscribers.append(self.request)
        while self.request.recv(64):
            pass


class Publisher(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address, Publishing)
        self.subscribers: list[socket.socket] = []


def publish(server: Publisher) -> None:
    """Sends something to every subscriber now and then."""
    while True:
        time.sleep(LONG_S)
        for each in server.subscribers:
            each.sendall(b"news\n")


def serve_news(server: Publisher) -> None:
    threading.Thread(target=publish, args=(server,), daemon=True).start()
    server.serve_forever()


def subscribe(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection:
        connection.sendall(b"topic\n")
        for news in connection.makefile("rb"):
            print(news)


def subscribers() -> None:
    """Healthy: clients wait for what a thread of the server sends now and then."""
    server = Publisher(("127.0.0.1", 0))
    FORK.Process(target=serve_news, args=(server,), daemon=True).start()
    for _ in range(2):
        FORK.Process(target=subscribe, args=(server.server_address,), daemon=True).start()
    ready()
    while True:
        time.sleep(0.3)
        sum(range(100_000))


def idle_connections() -> None:
    """Healthy: clients keep their connections open while they do something else."""
    with MeasuringServer(("127.0.0.1", 0), Measuring) as server:
        FORK.Process(target=serve_sizes, args=(server,), daemon=True).start()
        for _ in range(2):
            FORK.Process(target=rest, args=(server.server_address,), daemon=True).start()
        ready()
        while True:
            time.sleep(0.3)
            sum(range(100_000))


def rest(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection:
        ask(connection, b"pixels", 0)
        while True:
            time.sleep(0.3)
            sum(range(100_000))


CASES = {
    each.__name__: each
    for each in (wrong_length, unset_event, nested_slots, subscribers, idle_connections)
}


if __name__ == "__main__":
    CASES[sys.argv[1]]()
