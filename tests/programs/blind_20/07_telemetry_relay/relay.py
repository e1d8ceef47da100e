"""Relay: reads the array at its own rate and passes each frame on to the archive."""
import asyncio
import logging
import time

import walltime
from frames import FrameSource

log = logging.getLogger("relay")


class Relay:
    def __init__(self, source: FrameSource, rate: float):
        self.source = source
        self.period = 1.0 / rate
        self.sent = 0
        self.sent_bytes = 0

    async def connect(self, host: str, port: int):
        for attempt in range(5):
            try:
                return await asyncio.open_connection(host, port)
            except ConnectionError:
                await asyncio.sleep(0.2 * (attempt + 1))
        raise ConnectionError(f"no archive at {host}:{port}")

    async def forward(self, host: str, port: int) -> None:
        reader, writer = await self.connect(host, port)
        due = time.monotonic()
        while not writer.is_closing():
            frame = self.source.next_frame(time.time())
            writer.write(frame)
            self.sent += 1
            self.sent_bytes += len(frame)
            if self.sent % 600 == 0:
                log.info("%d frames sent, %.1f MB", self.sent, self.sent_bytes / 1e6)
            due += self.period
            await asyncio.sleep(max(0.0, due - time.monotonic()))


def relay_main(port: int, samples: int, rate: float, seed: int, limit: float) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    walltime.arm(limit)
    relay = Relay(FrameSource(samples, seed), rate)
    asyncio.run(relay.forward("127.0.0.1", port))
