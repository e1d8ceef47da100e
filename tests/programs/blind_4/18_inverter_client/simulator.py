"""Stand-in for the inverter's data adapter; it restarts itself for maintenance now and then."""
import asyncio
import struct
import sys

MAINTENANCE_AFTER = 80


async def handle(reader, writer):
    frames = 0
    while True:
        register, _ = struct.unpack("!HH", await reader.readexactly(4))
        writer.write(struct.pack("!HH", register, (register * 31 + frames) % 4096))
        frames += 1
        if frames == MAINTENANCE_AFTER:
            writer.transport.abort()
            return


async def main():
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        sys.exit(0)
