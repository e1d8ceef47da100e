"""Everything that can come in: what a source folds and a recording holds."""

from __future__ import annotations

from typing import TypeAlias

from mpwatch.model.events import HookGauges, HookHello, HookNote, HookSlice, HookStatus
from mpwatch.model.samples import Ended, StacksTaken, TreeSample

Input: TypeAlias = (
    TreeSample | Ended | StacksTaken | HookHello | HookSlice | HookNote | HookGauges | HookStatus
)
