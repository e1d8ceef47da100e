"""Every healthy program with its arguments, by a name for tables and tests."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent

VARIANTS: dict[str, tuple[str, ...]] = {
    "dataloader fork": ("healthy_dataloader",),
    "dataloader fork persistent": ("healthy_dataloader", "--persistent"),
    "dataloader fork file_system": ("healthy_dataloader", "--strategy", "file_system"),
    "dataloader spawn persistent": ("healthy_dataloader", "--method", "spawn", "--persistent"),
    "dataloader spawn file_system": (
        *("healthy_dataloader", "--method", "spawn", "--strategy", "file_system"),
    ),
    "dataloader forkserver persistent": (
        "healthy_dataloader",
        "--method",
        "forkserver",
        "--persistent",
    ),
    "dataloader forkserver file_system": (
        *("healthy_dataloader", "--method", "forkserver", "--persistent"),
        *("--strategy", "file_system"),
    ),
    "hogwild": ("healthy_hogwild",),
    "pool": ("healthy_pool",),
    "buffers sent back": ("healthy_buffers_sent_back",),
    "ddp mp.spawn": ("healthy_ddp",),
    "ddp torchrun": ("healthy_ddp", "--torchrun"),
    "just started": ("healthy_just_started",),
    "ends normally": ("healthy_ends",),
    "slow consumer": ("healthy_slow_consumer",),
    "held window": ("healthy_held_window",),
    "plateau": ("healthy_plateau",),
    "sawtooth": ("healthy_sawtooth",),
    "threads and forkserver": ("healthy_threads_forkserver",),
    "pinned": ("healthy_pinned",),
    "debugger": ("healthy_debugger",),
}


def command(python: str, name: str, seconds: float) -> list[str]:
    """Arguments that run a healthy program for so many seconds."""
    stem, *arguments = VARIANTS[name]
    return [python, str(FOLDER / f"{stem}.py"), *arguments, "--seconds", f"{seconds:g}"]
