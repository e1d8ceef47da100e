"""Builds the table variants of the fused activation on first use."""
import json
import logging
import os
import time

import torch
from torch.utils.file_baton import FileBaton

log = logging.getLogger("ops")
VARIANTS = [(act, bits) for act in ("gelu", "silu", "mish", "softplus") for bits in range(6, 14)]
_FN = {
    "gelu": torch.nn.functional.gelu,
    "silu": torch.nn.functional.silu,
    "mish": torch.nn.functional.mish,
    "softplus": torch.nn.functional.softplus,
}


def _compile_variant(act, bits, build_dir):
    grid = torch.linspace(-8, 8, 2**bits, dtype=torch.float64)
    table = _FN[act](grid)
    best = None
    stop = time.monotonic() + 0.8
    while time.monotonic() < stop:
        shift = torch.randn(()) * 1e-3
        err = (_FN[act](grid + shift) - table).abs().max().item()
        best = err if best is None else min(best, err)
        time.sleep(0.02)
    torch.save(table, os.path.join(build_dir, f"{act}_{bits}.pt"))
    return best


def load_ops(build_dir):
    os.makedirs(build_dir, exist_ok=True)
    manifest = os.path.join(build_dir, "manifest.json")
    if not os.path.exists(manifest):
        baton = FileBaton(os.path.join(build_dir, "lock"))
        if baton.try_acquire():
            try:
                log.info("building %d variants in %s", len(VARIANTS), build_dir)
                errors = {f"{a}_{b}": _compile_variant(a, b, build_dir) for a, b in VARIANTS}
                with open(manifest, "w") as f:
                    json.dump(errors, f)
            finally:
                baton.release()
        else:
            baton.wait()
    with open(manifest) as f:
        names = json.load(f)
    return {n: torch.load(os.path.join(build_dir, n + ".pt")) for n in names}

