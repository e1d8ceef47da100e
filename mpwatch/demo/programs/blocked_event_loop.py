"""Ask a server eight questions at the same time by asyncio, with a client that is not made for it.

Each coroutine waits in the thread of the event loop, so that the questions are asked one by one.
"""

import asyncio
import socket
import threading
import time

import torch

from mpwatch.demo.bounds import begin, mended

QUESTIONS = 8
ANSWERED_S = 0.4


def answer(connection):
    with connection:
        connection.recv(64)
        time.sleep(ANSWERED_S)
        connection.sendall(b"1.0")


def serve(listener):
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


async def ask(port):
    if mended():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"value")
        await writer.drain()
        value = float(await reader.read(64))
        writer.close()
        return value
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"value")
        return float(connection.recv(64))


async def ask_all(port, until_s):
    while time.monotonic() < until_s:
        values = await asyncio.gather(*(ask(port) for _ in range(QUESTIONS)))
        torch.tensor(values).mean()
        await asyncio.sleep(0.2)


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    listener = socket.create_server(("127.0.0.1", 0), backlog=2 * QUESTIONS)
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
    print("ready", flush=True)
    asyncio.run(ask_all(listener.getsockname()[1], until_s))


if __name__ == "__main__":
    main()
