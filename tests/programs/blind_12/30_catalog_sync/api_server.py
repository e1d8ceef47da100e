"""Small stand-in for the vendor's catalog API with its rate limit."""
import asyncio
import json
import time


class Limiter:
    def __init__(self, per_window, window):
        self.per_window, self.window = per_window, window
        self.start, self.used = time.monotonic(), 0

    def take(self):
        now = time.monotonic()
        if now - self.start >= self.window:
            self.start, self.used = now, 0
        if self.used < self.per_window:
            self.used += 1
            return 0.0
        return self.start + self.window - now


async def serve(port_conn, per_window, window):
    limiter = Limiter(per_window, window)

    async def handle(reader, writer):
        try:
            while line := await reader.readline():
                path = line.split()[1].decode()
                while (await reader.readline()).strip():
                    pass
                wait = limiter.take()
                if wait:
                    body = b"{}"
                    head = f"HTTP/1.1 429 Too Many Requests\r\nRetry-After: {wait:.2f}\r\n"
                else:
                    body = json.dumps({"sku": path.rsplit("/", 1)[-1], "stock": len(path) * 7 % 50}).encode()
                    head = "HTTP/1.1 200 OK\r\n"
                writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port_conn.send(server.sockets[0].getsockname()[1])
    async with server:
        await server.serve_forever()


def server_main(port_conn, per_window, window):
    asyncio.run(serve(port_conn, per_window, window))
