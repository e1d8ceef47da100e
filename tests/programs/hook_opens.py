"""Prints the names of its other threads, and what they have opened since the hook was attached."""

from __future__ import annotations

import os
import sys
import threading
import time

import mpwatch

main = threading.get_ident()
opened: list[str] = []


def hear(event: str, arguments: tuple[object, ...]) -> None:
    if event in ("open", "os.listdir", "socket.__new__") and threading.get_ident() != main:
        opened.append(f"{event} {arguments[0]}")


folder = os.environ["XDG_RUNTIME_DIR"] + "/mpwatch"
os.makedirs(folder, 0o700, exist_ok=True)
for number in range(9):  # the processes of such files are searched for
    open(f"{folder}/{os.getppid()}-{number}.ring", "wb").close()
sys.addaudithook(hear)
assert mpwatch.instrument()
time.sleep(0.5)  # until it waits for observers
for tid in map(int, os.listdir("/proc/self/task")):
    if tid != os.getpid():
        with open(f"/proc/self/task/{tid}/comm", encoding="ascii") as file:
            print(file.read().rstrip())
print(opened)
