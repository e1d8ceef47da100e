"""What is sent makes a terminal look as the whole update would, with less of it."""

from __future__ import annotations

import itertools
import random
import re

import pytest
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.geometry import Region
from textual.strip import Strip

from mpwatch.tui.app import MpwatchApp
from mpwatch.tui.sparse_update import BURST_S, Shown
from mpwatch.tui.widgets.line_canvas import joined
from tests.tui.scripted import ScriptedSource, loader_job

WIDTH, HEIGHT = 24, 5
STYLES = [Style(color="red"), Style(color="green", bold=True), Style()]
CUTS = [0, 9, 16, WIDTH]
_PIECE = re.compile(r"\x1b\[(\d+);(\d+)H|\x1b\[([0-9;]*)m|(\n)|([^\x1b\n])")


class Terminal:
    """As much of a terminal as it takes: a cell is its letter and the style it came in."""

    def __init__(self) -> None:
        self.cells = {(x, y): (" ", "") for x in range(WIDTH) for y in range(HEIGHT)}
        self.sent = 0

    def feed(self, text: str) -> None:
        self.sent += len(text)
        x, y, style = 0, 0, ""
        for row, column, sgr, newline, letter in _PIECE.findall(text):
            if row:
                x, y = int(column) - 1, int(row) - 1
            elif letter:
                self.cells[x, y] = (letter, style)
                x += 1
            elif not newline:
                style = "" if sgr in ("", "0") else sgr


@pytest.fixture
def console() -> Console:
    return Console(force_terminal=True, color_system="truecolor", width=WIDTH)


class Screen:
    """Lines that change here and there, and the updates Textual makes of that."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.lines = [self._line() for _ in range(HEIGHT)]

    def _line(self) -> list[Segment]:
        letters = "ab "
        return [
            Segment(self.chance.choice(letters), self.chance.choice(STYLES)) for _ in range(WIDTH)
        ]

    def whole(self) -> LayoutUpdate:
        return LayoutUpdate([[Strip(line)] for line in self.lines], Region(0, 0, WIDTH, HEIGHT))

    def change(self) -> ChopsUpdate:
        spans = []
        for y in sorted(self.chance.sample(range(HEIGHT), 3)):
            edges = sorted(self.chance.sample(range(WIDTH + 1), 4))
            if self.chance.random() < 0.3:
                edges = [0, WIDTH]
            fresh = self._line()
            for left, right in zip(edges[::2], edges[1::2], strict=True):
                if self.chance.random() < 0.8:
                    self.lines[y][left:right] = fresh[left:right]
                spans.append((y, left, right))
        chops = [{a: Strip(line[a:b]) for a, b in itertools.pairwise(CUTS)} for line in self.lines]
        return ChopsUpdate(chops, spans, [CUTS[1:]] * HEIGHT)


@pytest.mark.parametrize("seed", range(20))
def test_a_terminal_looks_the_same_and_was_sent_less(console: Console, seed: int) -> None:
    screen, shown = Screen(seed), Shown()
    usual, sparse = Terminal(), Terminal()
    for n in range(30):
        update = screen.change() if n and screen.chance.random() < 0.7 else screen.whole()
        usual.feed(update.render_segments(console))
        less = shown.sparse(update)
        assert isinstance(less, ChopsUpdate | LayoutUpdate)
        sparse.feed(less.render_segments(console))
        assert sparse.cells == usual.cells
    assert sparse.sent < usual.sent


def test_the_same_screen_is_sent_again_after_a_moment(console: Console) -> None:
    now_s = [100.0]
    screen, shown = Screen(1), Shown(lambda: now_s[0])

    def sent() -> int:
        update = shown.sparse(screen.whole())
        assert isinstance(update, LayoutUpdate)
        return len(update.render_segments(console))

    first = sent()
    assert first > 0
    assert sent() == 0
    shown.forget()
    assert sent() == first
    now_s[0] += BURST_S
    assert sent() == first


def test_only_the_cells_that_changed_are_sent(console: Console) -> None:
    line = [Segment("x" * WIDTH, Style())]
    update = ChopsUpdate([{0: Strip(line)}], [(0, 10, 12), (0, 20, 21)], [[WIDTH]])
    less = Shown().sparse(update)
    assert isinstance(less, ChopsUpdate)
    assert less.render_segments(console) == "\x1b[1;11Hxx\x1b[1;21Hx"


async def test_a_terminal_of_another_size_is_sent_everything() -> None:
    app = MpwatchApp(ScriptedSource(loader_job()))
    app._shown = Shown(lambda: 100.0)
    async with app.run_test(size=(80, 24)) as pilot:
        line = Strip([Segment("x")])
        assert app._shown.is_new(0, 0, line)
        assert not app._shown.is_new(0, 0, line)
        await pilot.resize_terminal(100, 30)
        await pilot.pause()
        assert app._shown.is_new(0, 0, line)


def test_neighbours_of_one_style_are_one_segment() -> None:
    red, green = STYLES[0], STYLES[1]
    pieces = [Segment("a", red), Segment("", green), Segment(" b", red), Segment("c", green)]

    assert list(joined(pieces)) == [Segment("a b", red), Segment("c", green)]
