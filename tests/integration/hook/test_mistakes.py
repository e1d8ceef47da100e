from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mpwatch.hook import wire
from tests.conftest import PROGRAMS, Start
from tests.integration.hook.client import Client, wait_for_sockets

pytestmark = pytest.mark.slow
# One worker of xdist runs these, because one program makes the mistakes.
TOGETHER = pytest.mark.xdist_group("mistakes")
MISTAKES = ("unpicklable", "written", "threads", "died", "foreign")


@functools.cache
def said_about_all() -> dict[str, str]:
    """The output of the program about each mistake."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(PROGRAMS / "hook_mistakes.py"), *MISTAKES],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=True,
    )
    parts = re.split(r"^mistake (\w+)\n", done.stdout, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def notes_of(mistake: str) -> dict[str, dict[str, Any]]:
    """The last note of each kind that a mistake produces."""
    said = said_about_all()[mistake]
    lines = [line[5:] for line in said.splitlines() if line.startswith("note ")]
    assert "missing {} []" in said
    return {note["kind"]: note for note in map(json.loads, lines)}


@TOGETHER
def test_the_part_that_cannot_be_pickled_is_named_with_its_path() -> None:
    note = notes_of("unpicklable")["unpicklable"]

    # Torch 2.15 passes the dataset in a list, which the worker empties.
    assert note["path"] in ("._args[1].parts[1].function", "._args[1][0].parts[1].function")
    assert note["type"] == ("PicklingError" if sys.version_info >= (3, 14) else "AttributeError")


@TOGETHER
def test_a_tensor_written_after_it_was_put_is_named_with_its_line() -> None:
    note = notes_of("written")["written-after-put"]

    assert (note["function"], note["writes"], note["shape"]) == ("written", 16, [4])
    assert note["file"].endswith("hook_mistakes.py")


@TOGETHER
def test_threads_alive_at_a_fork_are_named() -> None:
    note = notes_of("threads")["fork"]

    assert note["python_threads"] == ["prefetcher"]
    assert note["multiprocessing"] is False
    assert note["frames"][0][0] == "threads"


@TOGETHER
def test_an_exception_that_ends_a_thread_is_noted_where_nothing_prints_it() -> None:
    note = notes_of("died")["thread-died"]

    assert (note["thread"], note["type"], note["text"]) == ("pt_data_pin", "LookupError", "gone")


def test_generators_inside_a_dataset_have_equal_states_in_all_workers(
    start: Start, runtime: Path
) -> None:
    program = start("hook_mistakes.py", "generators")
    program.wait_for("ready")
    hashes = []
    for pid, path in wait_for_sockets(runtime, 3).items():
        if pid != program.pid:
            with Client(path) as client:
                client.hello()
                client.ask("ping")
                client.listen_for(wire.LOADER_FETCH, 4)
                client.ask("ping")
            hashes += [note["hashes"] for note in client.notes if note["kind"] == "generators"]

    assert len(hashes) == 2
    assert hashes[0]["dataset.rng"] == hashes[1]["dataset.rng"]
    assert hashes[0]["random"] != hashes[1]["random"]


def test_a_batch_that_a_feeder_thread_dropped_is_noted_with_its_number(
    start: Start, runtime: Path
) -> None:
    program = start("hook_mistakes.py", "lost")
    program.wait_for("ready")
    lost = []
    for path in wait_for_sockets(runtime, 2).values():
        with Client(path) as client:
            client.hello()
            client.ask("ping")
        lost += [note for note in client.notes if note["kind"] == "lost-item"]

    (note,) = lost
    assert (note["type"], note["text"], note["task"]) == ("ValueError", "cannot be sent", 3)


def test_with_torch_every_point_is_set_and_every_object_restored() -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "hook_identity.py")],
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
    )

    assert done.stdout.splitlines() == ["missing {}", "changed True", "calls True"]


@TOGETHER
def test_a_forked_copy_of_an_iterator_that_shuts_down_its_parents_workers_is_noted() -> None:
    note = notes_of("foreign")["foreign-shutdown"]

    assert (note["owner"] > 0, note["loader"]) == (True, 1)


# Sends a buffer, a new tensor, and the buffer again; prints which of them the hook calls copied.
COPIES = """
import torch, torch.multiprocessing as mp, mpwatch
assert mpwatch.instrument()
from mpwatch.collect.hook.decode import read_ring
from mpwatch.hook import current, wire
buffer, fresh = torch.zeros(1000), torch.zeros(1000)
buffer.share_memory_()
queue = mp.SimpleQueue()
for tensor in (buffer, fresh, buffer):
    queue.put(tensor)
    queue.get()
events = read_ring(current().ring.path).events
print(*[bool(event.flags & wire.FLAG_COPIED) for event in events if event.kind == wire.SHARE])
"""


@pytest.mark.usefixtures("runtime_in_memory")
def test_only_what_was_not_in_shared_memory_before_counts_as_copied() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COPIES], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "False True False\n"
