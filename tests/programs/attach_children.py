"""Children of `multiprocessing` that end when a byte arrives: `attach_children.py METHOD CODE`."""

import multiprocessing
import sys
from typing import Any


def child(connection, code):
    while not connection.poll(0.05):
        pass
    sys.exit(code)


def main():
    context: Any = multiprocessing.get_context(sys.argv[1])
    pairs = [context.Pipe() for _ in range(2)]
    children = [context.Process(target=child, args=(p[1], int(sys.argv[2]))) for p in pairs]
    for each in children:
        each.start()
    print("ready", flush=True)
    print(*[each.pid for each in children], flush=True)
    sys.stdin.readline()
    for ours, _ in pairs:
        ours.send_bytes(b"end")
    for each in children:
        each.join()
    print(*[each.exitcode for each in children], flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
