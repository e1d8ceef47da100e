"""Which job `mpwatch job` opens where none is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpwatch.cli import main


def test_inside_an_allocation_the_job_is_that_of_the_allocation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("srun", "squeue"):
        (tmp_path / name).write_text('#!/bin/sh\necho "$3 $3 n1"\n')
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_JOB_ID", "4711")

    assert main(["job"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("mpwatch: The dashboard needs a terminal")
    assert said.endswith("  try: mpwatch dump --job slurm:\n")


def test_outside_an_allocation_the_job_has_to_be_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)

    assert main(["job"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("mpwatch: Which job? ")
    assert said.endswith("  try: mpwatch job ssh:HOST,HOST\n")
