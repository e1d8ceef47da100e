"""Filter processes used while a shard is cleaned.

A filter is a forked process with one pipe in and one pipe out, in the way of a
unix filter.  The sorter is short lived (one per shard); the script server is
kept for the rest of the run because loading its tables is slow.
"""
import logging
import multiprocessing as mp
import os
import struct
import time

log = logging.getLogger("filters")
ctx = mp.get_context("fork")


class FilterProcess:
    """A child reading records from one pipe and answering on another."""

    def __init__(self, name, target, *args):
        self.name = name
        self._child_in, self.stdin_fd = os.pipe()
        self.stdout_fd, self._child_out = os.pipe()
        self.process = ctx.Process(target=self._bootstrap, args=(target, args), name=name, daemon=True)

    def start(self):
        self.process.start()
        os.close(self._child_in)
        os.close(self._child_out)
        self.writer = os.fdopen(self.stdin_fd, "w", encoding="utf-8")
        self.reader = os.fdopen(self.stdout_fd, "r", encoding="utf-8")
        log.info("started %s as pid %d", self.name, self.process.pid)
        return self

    def _bootstrap(self, target, args):
        os.close(self.stdin_fd)
        os.close(self.stdout_fd)
        with os.fdopen(self._child_in, "r", encoding="utf-8") as source, \
                os.fdopen(self._child_out, "w", encoding="utf-8") as sink:
            target(source, sink, *args)

    def send(self, line):
        self.writer.write(line + "\n")

    def ask(self, line):
        self.send(line)
        self.writer.flush()
        return self.reader.readline().rstrip("\n")

    def finish(self):
        """Close the input and collect everything the filter prints."""
        self.writer.close()
        lines = self.reader.read().splitlines()
        self.reader.close()
        self.process.join()
        return lines


def sort_unique(source, sink, shingle=5):
    """Whole-shard filter: sorts the documents and drops near duplicates."""
    seen, kept = set(), []
    for line in source:
        words = line.split()
        key = hash(tuple(words[:shingle]))
        if key not in seen:
            seen.add(key)
            kept.append(line)
    for line in sorted(kept):
        sink.write(line)


def serve_scripts(source, sink, table_size=200_000):
    """Answers the dominant script of a line, one line at a time."""
    table = {cp: ("latin" if cp < 0x250 else "greek" if cp < 0x400 else "cyrillic" if cp < 0x530 else "other")
             for cp in range(table_size)}
    time.sleep(0.5)
    for line in source:
        counts = {}
        for ch in line.strip():
            if not ch.isspace():
                script = table.get(ord(ch), "other")
                counts[script] = counts.get(script, 0) + 1
        sink.write(max(counts, key=counts.get) if counts else "empty")
        sink.write("\n")
        sink.flush()
