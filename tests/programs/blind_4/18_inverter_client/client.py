import asyncio
import logging
import struct

log = logging.getLogger("inverter.client")


class InverterClient:
    """Keeps one connection; requests go through a small queue that a background task writes out."""

    def __init__(self, host, port):
        self.host, self.port = host, port
        self.tx = asyncio.Queue(maxsize=5)
        self.registers = {}

    async def connect(self):
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port)
        self.tasks = [asyncio.create_task(self._transmit(), name="tx"),
                      asyncio.create_task(self._receive(), name="rx")]

    async def _transmit(self):
        while True:
            frame, sent = await self.tx.get()
            self.writer.write(frame)
            await self.writer.drain()
            sent.set_result(True)
            await asyncio.sleep(0.02)

    async def _receive(self):
        while True:
            header = await self.reader.readexactly(4)
            register, value = struct.unpack("!HH", header)
            self.registers[register] = value

    async def read_register(self, register):
        sent = asyncio.get_running_loop().create_future()
        await self.tx.put((struct.pack("!HH", register, 0), sent))
        await sent
