"""Runs model-written snippets in a child interpreter and collects what they print."""
import asyncio
import dataclasses
import sys
import time


@dataclasses.dataclass
class RunResult:
    sample_id: str
    returncode: int
    stdout: bytes
    stderr: bytes
    seconds: float


async def read_all(stream):
    chunks = []
    while True:
        chunk = await stream.read(65536)
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)


async def run_snippet(sample_id, path, timeout):
    started = time.monotonic()
    proc = await asyncio.create_subprocess_exec(
        sys.executable, "-I", str(path),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        await asyncio.wait_for(proc.wait(), timeout=timeout)
    except asyncio.TimeoutError:
        proc.kill()
        await proc.wait()
    out = await read_all(proc.stdout)
    err = await read_all(proc.stderr)
    return RunResult(sample_id, proc.returncode, out, err, time.monotonic() - started)
