"""States of processes and threads in words."""

from __future__ import annotations

STATE_WORDS = {
    "R": "running",
    "S": "sleeping",
    "D": "disk wait",
    "T": "stopped",
    "t": "traced",
    "Z": "zombie",
    "X": "dead",
    "I": "idle",
}
"""By the letter in `/proc/PID/stat`, see proc_pid_stat(5)."""
