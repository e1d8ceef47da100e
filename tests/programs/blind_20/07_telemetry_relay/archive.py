"""Archive side: takes frames from the relay, computes band powers and appends them to a file."""
import asyncio
import logging
import time
from pathlib import Path

import numpy as np

import walltime
from frames import CHANNELS, HEADER, parse_header

log = logging.getLogger("archive")


class Archive:
    def __init__(self, path: Path, bands: int, commit_seconds: float):
        self.path, self.bands, self.commit_seconds = path, bands, commit_seconds
        self.frames = 0
        self.lag = 0.0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with open(self.path, "ab") as out:
            try:
                while True:
                    number, channels, stamp, size = parse_header(await reader.readexactly(HEADER.size))
                    payload = await reader.readexactly(size)
                    self.store(out, payload)
                    self.frames += 1
                    self.lag = time.time() - stamp
                    if self.frames % 150 == 0:
                        log.info("frame %d stored, %.1f s behind", number, self.lag)
                    await asyncio.sleep(self.commit_seconds)
            except asyncio.IncompleteReadError:
                log.info("relay went away after %d frames", self.frames)
        writer.close()

    def store(self, out, payload: bytes) -> None:
        samples = np.frombuffer(payload, dtype=np.int16).reshape(CHANNELS, -1).astype(np.float32)
        power = np.abs(np.fft.rfft(samples, axis=1)) ** 2
        bands = np.stack([b.mean(axis=1) for b in np.array_split(power, self.bands, axis=1)], axis=1)
        out.write(bands.astype(np.float32).tobytes())


async def serve(port_pipe, path: Path, bands: int, commit_seconds: float) -> None:
    archive = Archive(path, bands, commit_seconds)
    server = await asyncio.start_server(archive.handle, "127.0.0.1", 0)
    port_pipe.send(server.sockets[0].getsockname()[1])
    async with server:
        await server.serve_forever()


def archive_main(port_pipe, path: str, bands: int, commit_seconds: float, limit: float) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    walltime.arm(limit)
    asyncio.run(serve(port_pipe, Path(path), bands, commit_seconds))
