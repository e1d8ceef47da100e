"""`python -m mpwatch`."""

from __future__ import annotations

import sys

from mpwatch.cli import main

if __name__ == "__main__":
    sys.exit(main())
