"""HTTP front: /convert/async, /status/poll/ID, /result/ID."""
import json
import logging
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

log = logging.getLogger("app")


def make_handler(orchestrator):
    class Handler(BaseHTTPRequestHandler):
        def answer(self, code, payload):
            body = json.dumps(payload).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self):
            if self.path != "/v1alpha/convert/source/async":
                return self.answer(404, {"detail": "not found"})
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            task = orchestrator.enqueue(request["source"], request.get("options", {}))
            self.answer(200, {"task_id": task.task_id, "task_status": task.status,
                              "task_position": orchestrator.queue_position(task.task_id)})

        def do_GET(self):
            parts = self.path.strip("/").split("/")
            try:
                task = orchestrator.get(parts[-1])
            except KeyError:
                return self.answer(404, {"detail": "task not found"})
            if parts[1] == "status":
                return self.answer(200, {"task_id": task.task_id, "task_status": task.status})
            if not task.is_completed:
                return self.answer(404, {"detail": "task result not found"})
            self.answer(200, {"document": task.result, "status": task.status, "error": task.error})

        def log_message(self, format, *args):
            log.debug(format, *args)

    return Handler


def make_server(orchestrator):
    return ThreadingHTTPServer(("127.0.0.1", 0), make_handler(orchestrator))
