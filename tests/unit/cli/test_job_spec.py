"""Which job `mpwatch job` opens where none is named."""

from __future__ import annotations

import pytest

from mpwatch.cli import main


def test_inside_an_allocation_the_job_is_that_of_the_allocation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "4711")

    assert main(["job"]) == 2
    assert capsys.readouterr().err.endswith("  try: mpwatch dump --job slurm:4711\n")


def test_outside_an_allocation_the_job_has_to_be_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)

    assert main(["job"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("mpwatch: Which job? ")
    assert said.endswith("  try: mpwatch job ssh:HOST,HOST\n")
