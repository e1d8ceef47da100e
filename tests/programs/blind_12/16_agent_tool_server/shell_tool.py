"""Shell tool that the agents use to run commands in their workspace."""
import asyncio
import logging
import os
from dataclasses import dataclass

log = logging.getLogger("tools.shell")


@dataclass
class ShellResult:
    returncode: int
    stdout: str
    stderr: str

    def render(self, limit=400):
        text = self.stdout if self.returncode == 0 else self.stderr or self.stdout
        return f"[exit {self.returncode}] {text.strip()[:limit]}"


async def execute_shell_command(command, cwd, timeout=10.0):
    proc = await asyncio.create_subprocess_shell(
        command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=cwd,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    timed_out = False
    try:
        await asyncio.wait_for(proc.wait(), timeout=timeout)
    except asyncio.TimeoutError:
        log.warning("command timed out after %.0fs: %s", timeout, command)
        timed_out = True
        proc.terminate()
    stdout, stderr = await proc.communicate()
    result = ShellResult(proc.returncode, stdout.decode(errors="replace"), stderr.decode(errors="replace"))
    if timed_out:
        result.returncode = -1
        result.stderr += f"\nTimeoutError: exceeded {timeout:.0f}s"
    return result
