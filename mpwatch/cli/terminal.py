"""Width and colour of printed reports."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpwatch.report.table import Paper


def paper() -> Paper:
    """Width of standard output in columns (100 for a pipe), and whether to use colour."""
    # Imported here: JSON output does not need the module.
    from mpwatch.report.table import Paper

    is_terminal = sys.stdout.isatty()
    width = os.get_terminal_size(sys.stdout.fileno()).columns if is_terminal else 100
    return Paper(width=max(60, width), has_colour=is_terminal and "NO_COLOR" not in os.environ)
