"""What a Python program costs that does next to nothing of what a dashboard does.

    python tests/benchmarks/watching_floor.py PID

Once a second it reads `stat` of a process and its children through descriptors it holds open, and
draws those lines again that are not what they were, in Textual. `watching.py` runs it beside the
dashboard: what is below that is not to be had in Python with Textual.
"""

from __future__ import annotations

import os
import sys

from rich.segment import Segment
from textual.app import App
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget


class Lines(Widget):
    """One line a process."""

    def __init__(self, pids):
        super().__init__()
        flags = os.O_RDONLY | os.O_CLOEXEC
        self.fds = [os.open(f"/proc/{pid}/stat", flags) for pid in pids]
        self.lines = [b""] * len(pids)

    def on_mount(self):
        self.set_interval(1.0, self.look)

    def look(self):
        changed = []
        for y, fd in enumerate(self.fds):
            line = os.pread(fd, 4096, 0)
            if line != self.lines[y]:
                self.lines[y] = line
                changed.append(Region(0, y, self.size.width, 1))
        if changed:
            self.refresh(*changed)

    def render_line(self, y):
        line = self.lines[y] if y < len(self.lines) else b""
        strip = Strip([Segment(line.decode("utf-8", "replace").strip())])
        return strip.crop_extend(0, self.size.width, self.rich_style)


class Floor(App[None]):
    """The app that shows the lines."""

    def __init__(self, pids):
        super().__init__()
        self.pids = pids

    def compose(self):
        yield Lines(self.pids)


def main():
    root = int(sys.argv[1])
    with open(f"/proc/{root}/task/{root}/children") as file:
        Floor([root, *map(int, file.read().split())]).run()


if __name__ == "__main__":
    main()
