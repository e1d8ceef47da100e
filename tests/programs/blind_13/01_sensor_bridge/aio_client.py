"""Asyncio front of WireClient."""
import asyncio

from wire import WireClient


class AsyncClient:
    def __init__(self, host, port, client_id):
        self._loop = asyncio.get_running_loop()
        self._host, self._port = host, port
        self._connected = self._loop.create_future()
        self.messages = asyncio.Queue(maxsize=1000)

        self._client = WireClient(client_id)
        self._client.on_connect = self._on_connect
        self._client.on_message = self._on_message
        self._client.on_socket_open = self._on_socket_open
        self._client.on_socket_register_write = self._on_socket_register_write
        self._client.on_socket_unregister_write = self._on_socket_unregister_write

    async def __aenter__(self):
        # connect() resolves and connects synchronously, keep that out of the loop
        await self._loop.run_in_executor(None, self._client.connect, self._host, self._port)
        await asyncio.wait_for(self._connected, timeout=10)
        return self

    async def __aexit__(self, *exc):
        self._loop.remove_reader(self._client.sock)
        self._client.sock.close()

    async def subscribe(self, topic):
        await self._loop.run_in_executor(None, self._client.subscribe, topic)

    def publish(self, topic, payload):
        self._client.publish(topic, payload)

    def _on_connect(self, client):
        if not self._connected.done():
            self._connected.set_result(True)

    def _on_message(self, client, topic, payload):
        try:
            self.messages.put_nowait((topic, payload))
        except asyncio.QueueFull:
            pass

    def _on_socket_open(self, client, sock):
        async def add_reader():
            self._loop.add_reader(sock, client.loop_read)

        asyncio.run_coroutine_threadsafe(add_reader(), self._loop).result()

    def _on_socket_register_write(self, client, sock):
        async def add_writer():
            self._loop.add_writer(sock, client.loop_write)

        fut = asyncio.run_coroutine_threadsafe(add_writer(), self._loop)
        fut.result()

    def _on_socket_unregister_write(self, client, sock):
        self._loop.remove_writer(sock)
