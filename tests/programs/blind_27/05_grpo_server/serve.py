"""HTTP server in front of data-parallel generation workers."""
import json
import logging
import multiprocessing as mp
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from engine import LLM

logger = logging.getLogger("serve")


def llm_worker(rank, max_model_len, connection):
    llm = LLM(max_model_len=max_model_len)
    connection.send({"status": "ready"})
    while True:
        command = connection.recv()
        if command["type"] == "shutdown":
            break
        result = getattr(llm, command["method"])(**command["kwargs"])
        connection.send(result)


def chunk_list(items, n):
    k, r = divmod(len(items), n)
    return [items[i * k + min(i, r):(i + 1) * k + min(i + 1, r)] for i in range(n)]


class Router:
    def __init__(self, data_parallel_size, max_model_len):
        ctx = mp.get_context("fork")
        self.connections, self.pipes, self.processes = [], [], []
        for rank in range(data_parallel_size):
            parent_connection, child_connection = ctx.Pipe()
            process = ctx.Process(target=llm_worker, args=(rank, max_model_len, child_connection), name=f"llm_worker_{rank}")
            process.start()
            self.connections.append(parent_connection)
            self.pipes.append((parent_connection, child_connection))
            self.processes.append(process)
        for connection in self.connections:
            assert connection.recv()["status"] == "ready"

    def generate(self, prompts, max_tokens):
        for connection, chunk in zip(self.connections, chunk_list(prompts, len(self.connections))):
            connection.send({"type": "call", "method": "generate", "kwargs": {"prompts": chunk, "max_tokens": max_tokens}})
        outputs = [connection.recv() for connection in self.connections]
        return [tokens for chunk in outputs for tokens in chunk]


def make_handler(router):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self._reply({"status": "ok"})

        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._reply({"completion_ids": router.generate(request["prompts"], request["max_tokens"])})

        def _reply(self, payload):
            body = json.dumps(payload).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, fmt, *args):
            logger.info(fmt, *args)
    return Handler


def serve(data_parallel_size, max_model_len, port_queue):
    router = Router(data_parallel_size, max_model_len)
    server = ThreadingHTTPServer(("127.0.0.1", 0), make_handler(router))
    port_queue.put(server.server_port)
    logger.info("Application startup complete, port %d", server.server_port)
    server.serve_forever()
