"""`slurm:JOBID`: one step in the job's own allocation for each node, beside the running ones."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from functools import partial

from mpwatch.model.sanitize import clean
from mpwatch.nodes.launchers.launch import (
    AgentCommand,
    CannotLaunch,
    Launch,
    engine,
    lines_of,
)

INSTALL = "apt-get install slurm-client"
_JOB = re.compile(r"[0-9]{1,18}(?:[_+][0-9]{1,9})?")
_CANCELLED = re.compile(r"\*\*\* STEP \S+ ON \S+ CANCELLED AT \S+(?: DUE TO ([^*\n]+?))? \*\*\*")
"""What slurmstepd prints about a step that ends with its job, whether the job has ended by itself,
by scancel(1) or at its time limit (seen with Slurm 22.05)."""
_EXPIRED = re.compile(r"Slurm job \S+ has expired|Invalid job id specified")
"""What srun prints where the job has ended before."""
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}")


def launches(rest: str, agent: AgentCommand) -> list[Launch]:
    """One step for each node; `rest` is what follows `slurm:`, empty inside an allocation.

    `--overlap` shares the cpus of the running steps (Slurm 20.11 and later), `--gres=none` and
    `--mem=0` ask for nothing that they hold. Only processes of this job are observed.

    Raises:
        CannotLaunch: Slurm is not installed, or does not know the job.
    """
    job = rest or os.environ.get("SLURM_JOB_ID", "")
    if not _JOB.fullmatch(job):
        raise CannotLaunch(
            f"{job!r} is not the number of a Slurm job.", "squeue --me; mpwatch job slurm:JOBID"
        )
    srun = engine("srun", INSTALL)
    found = lines_of([engine("squeue", INSTALL), "-h", "-j", job, "-t", "RUNNING", "-o", "%A %N"])
    fields = [line.split() for line in found]
    lists = [words for words in fields if len(words) == 2]
    if not lists:
        raise CannotLaunch(f"Slurm has no running job {job}.", "squeue --me")
    scontrol = engine("scontrol", INSTALL)
    number = lists[0][0]
    names = lines_of([scontrol, "show", "hostnames", lists[0][1]])
    wrong = next((name for name in names if not _NODE.fullmatch(name)), None)
    if wrong is not None:
        raise CannotLaunch(f"Slurm named a node {wrong!r}, which is no name of a host.")
    own = replace(agent, environment={"SLURM_JOB_ID": number, **agent.environment})
    options = ("--overlap", f"--jobid={job}", "-N1", "-n1", "--gres=none", "--mem=0", "--quiet")
    return [
        Launch(
            name,
            (srun, *options, "-w", name, "sh", "-c", own.shell_line()),
            f"srun --overlap --jobid={job} -w {name} {own.check}",
            explain=partial(_why_ended, number),
        )
        for name in names
    ]


def _why_ended(job: str, told: str) -> str:
    """What slurmstepd and srun have printed, in one sentence; empty if the job may still run."""
    cancelled = _CANCELLED.search(told)
    if cancelled is None:
        return f"Slurm job {job} has ended." if _EXPIRED.search(told) else ""
    reason = cancelled.group(1)
    if reason is None:
        return f"Slurm cancelled the agent, as it does when job {job} ends."
    if reason == "TIME LIMIT":
        return f"Slurm cancelled the agent: job {job} has reached its time limit."
    return f"Slurm cancelled the agent: {clean(reason).lower()}."
