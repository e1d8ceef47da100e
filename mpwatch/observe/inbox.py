"""Inputs made on other threads, waiting for the observing thread to fold them."""

from __future__ import annotations

import queue

from mpwatch.model.inputs import Input


class Inbox:
    """An unbounded queue that is emptied at one go; producers are few and slow."""

    def __init__(self) -> None:
        self._inputs: queue.SimpleQueue[Input] = queue.SimpleQueue()

    def put(self, input: Input) -> None:
        """Leave an input; never blocks."""
        self._inputs.put(input)

    def drain(self) -> list[Input]:
        """Take everything that is there."""
        taken: list[Input] = []
        # Asked ten times a second, and hardly ever is there anything.
        while not self._inputs.empty():
            try:
                taken.append(self._inputs.get_nowait())
            except queue.Empty:
                break
        return taken
