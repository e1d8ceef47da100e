"""Lines of text that are replaced as a whole, drawn as strips with cached styles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, TypeVar, get_args

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from mpwatch.tui.elements.styled_text import Line, Tone, text_of, width_of

Align = Literal["left", "right"]
ReturnType = TypeVar("ReturnType")
_PREFIX = "canvas--"
_PARTS = ("header", "sorted", "cursor", "cursor-blurred")
"""What has a style of its own in tables, in addition to the tones."""


class TonedApp(App[ReturnType]):
    """An application whose widgets draw toned lines.

    The tones are components of the application: Textual computes the style of each component for
    each widget that declares it, at its start and at each change of focus or theme. Declared by
    the widgets, they took a quarter of the cpu time of a dashboard that is shown once.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        _PREFIX + name for name in (*get_args(Tone), *_PARTS) if name
    }


def joined(segments: list[Segment]) -> Strip:
    """Segments with equal neighbours merged, since each is sent with its full style."""
    out: list[Segment] = []
    for segment in segments:
        if not segment.text:
            continue
        if out and out[-1].style == segment.style:
            out[-1] = Segment(out[-1].text + segment.text, segment.style)
        else:
            out.append(segment)
    return Strip(out)


class LineCanvas(ScrollView):
    """Draws toned lines; subclasses decide the content and its place."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._tones: dict[str, Style] = {}
        self._plain_style: Style | None = None

    def notify_style_update(self) -> None:
        """Forget the styles when the theme or a pseudo class changes."""
        self._tones = {}
        self._plain_style = None
        super().notify_style_update()

    @property
    def base_style(self) -> Style:
        """The style of lines, cached because it is composed from all widgets behind."""
        if self._plain_style is None:
            self._plain_style = self.rich_style
        return self._plain_style

    def tone_style(self, tone: str) -> Style:
        """What a tone adds to the style of its line."""
        if not tone:
            return Style.null()
        found = self._tones.get(tone)
        if found is None:
            found = self._blended(_PREFIX + tone)
            self._tones[tone] = found
        return found

    def toned(self, base: Style, tone: str) -> Style:
        """A tone on top of the style of its line.

        On a reversed line a tone would colour the background, so it is omitted there.
        """
        return base if not tone or base.reverse else base + self.tone_style(tone)

    def _blended(self, name: str) -> Style:
        """A component's style with its colour blended into the background.

        A partial style drops transparency, so muted text would not look muted.
        """
        styles = self.app.get_component_styles(name)
        own = styles.partial_rich_style
        if own.color is None:
            return own
        _, background = self.background_colors
        background += styles.background
        color = background.get_contrast_text(styles.color.a) if styles.auto_color else styles.color
        return own + Style(color=(background + color).rich_color)

    def segments(self, content: Line, width: int, align: Align, base: Style) -> list[Segment]:
        """A line as segments of exactly `width` cells."""
        used = 0
        out: list[Segment] = []
        for span in content:
            size = len(span.text) if span.text.isascii() else cell_len(span.text)
            style = self.toned(base, span.tone)
            if used + size > width:
                left = width - used - 1
                text = set_cell_size(span.text, left) + "…" if left >= 0 else ""
                out.append(Segment(text, style))
                used = width if left >= 0 else used
                break
            out.append(Segment(span.text, style))
            used += size
        if used < width:
            blank = Segment(" " * (width - used), base)
            if align == "left":
                out.append(blank)
            else:
                out.insert(0, blank)
        return out

    def strip_of(self, content: Line, base: Style) -> Strip:
        """A whole line as wide as the widget, moved by the horizontal scroll."""
        strip = joined([Segment(s.text, self.toned(base, s.tone)) for s in content])
        left = self.scroll_offset.x
        return strip.crop_extend(left, left + self.size.width, base)


WIDTH_STEP = 8
"""The scrollable width grows in steps, so that one more digit causes no layout."""


class LineView(LineCanvas):
    """Scrollable toned lines; only changed lines are drawn again."""

    DEFAULT_CSS = """
    LineView { height: auto; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; }
    """

    def __init__(
        self, *, id: str | None = None, classes: str | None = None, focusable: bool = False
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.can_focus = focusable
        self._lines: Sequence[Line] = ()
        self._shown_at: Size | None = None

    @property
    def lines(self) -> Sequence[Line]:
        """The lines shown."""
        return self._lines

    @property
    def plain(self) -> str:
        """The lines shown, as text to copy."""
        return "\n".join(text_of(content).rstrip() for content in self._lines)

    def show(self, lines: Sequence[Line], *, is_new: bool = True) -> None:
        """Replace the lines; the scroll position stays.

        Args:
            lines: Top to bottom.
            is_new: Whether the lines have a new subject, so that the height may shrink. Otherwise
                it does not: a change of size causes layout and output of the whole screen.
        """
        before, self._lines = self._lines, lines
        seen = self.size  # Textual looks the widget up for each read
        if not is_new and lines == before and seen == self._shown_at:
            return
        self._shown_at = seen
        whole = self._scroll_size(lines, is_new, seen)
        if whole != self.virtual_size:
            self.virtual_size = whole
            seen = self.size
        left, top = self.scroll_offset
        changed: list[Region] = []
        for y in range(top, top + max(seen.height, 1)):
            old, new = _at(before, y), _at(lines, y)
            if old != new:
                start = max(0, _same_cells(old or (), new or ()) - left)
                width = max(whole.width, seen.width) - start
                changed.append(Region(start, y - top, width, 1))
        if changed:
            self.refresh(*changed)

    def _scroll_size(self, lines: Sequence[Line], is_new: bool, seen: Size) -> Size:
        """The scrollable size; no horizontal scrolling if all lines fit."""
        widest = max((width_of(content) for content in lines), default=0)
        steps = -(-widest // WIDTH_STEP) * WIDTH_STEP
        room = seen.width - (len(lines) > seen.height)  # the scrollbar covers one column
        found = Size(seen.width if widest <= room else steps, len(lines))
        if is_new:
            return found
        kept = self.virtual_size
        return Size(max(found.width, kept.width), max(found.height, kept.height))

    def render_line(self, y: int) -> Strip:
        """Draw one visible line."""
        content = _at(self._lines, y + self.scroll_offset.y)
        if content is None:
            return Strip.blank(self.size.width, self.base_style)
        return self.strip_of(content, self.base_style)


def _at(lines: Sequence[Line], index: int) -> Line | None:
    return lines[index] if 0 <= index < len(lines) else None


class ScrollingLines(LineView, can_focus=True):
    """Lines scrolled by the keys of a pager."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll_up", "Up", show=False, id="lines.up"),
        Binding("down,j", "scroll_down", "Down", show=False, id="lines.down"),
        Binding("left,h", "scroll_left", "Left", show=False, id="lines.left"),
        Binding("right,l", "scroll_right", "Right", show=False, id="lines.right"),
        Binding("pageup", "page_up", "Page up", show=False, id="lines.page_up"),
        Binding("pagedown", "page_down", "Page down", show=False, id="lines.page_down"),
        Binding("home,g", "scroll_home", "Top", show=False, id="lines.home"),
        Binding("end,G", "scroll_end", "End", show=False, id="lines.end"),
    ]

    DEFAULT_CSS = """
    ScrollingLines { height: 1fr; }
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes, focusable=True)

    def allow_focus(self) -> bool:
        """Accept focus; beside a table only if not all lines are visible."""
        if not self.has_class("details"):
            return super().allow_focus()
        seen, whole = self.size, self.virtual_size
        return whole.height > seen.height or whole.width > seen.width


def _same_cells(old: Line, new: Line) -> int:
    """How many cells at the left two lines have in common, in whole pieces."""
    same = 0
    for before, after in zip(old, new, strict=False):
        if before != after:
            break
        same += width_of((after,))
    return same
