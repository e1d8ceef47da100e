"""A stand-in for the module `os` that the hook uses."""

from __future__ import annotations

import os
from typing import Any


class Os:
    """The module, with some functions replaced: another user, or a disk that refuses."""

    def __init__(self, **replaced: Any) -> None:
        self.replaced = replaced

    def __getattr__(self, name: str) -> Any:
        return self.replaced.get(name) or getattr(os, name)
