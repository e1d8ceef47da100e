"""What printed reports are written on: the terminal, or a pipe."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpwatch.report.table import Paper


def paper() -> Paper:
    """How wide standard output is, and whether it may be coloured."""
    # Here, because what is printed as JSON needs none.
    from mpwatch.report.table import Paper

    is_terminal = sys.stdout.isatty()
    width = os.get_terminal_size(sys.stdout.fileno()).columns if is_terminal else 100
    return Paper(width=max(60, width), has_colour=is_terminal and "NO_COLOR" not in os.environ)
