"""Tiny web UI that starts trainings and streams their logs to the browser."""
import argparse
import json
import logging
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

log = logging.getLogger("ui")


class TrainJob:
    def __init__(self, config):
        self.config = config
        self.started = time.time()
        cmd = [sys.executable, "trainer.py", "--steps", str(config["steps"]), "--log-every", "1"]
        self.proc = subprocess.Popen(cmd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def status(self):
        rc = self.proc.poll()
        state = "running" if rc is None else ("finished" if rc == 0 else "failed")
        return {"state": state, "pid": self.proc.pid, "elapsed": round(time.time() - self.started, 1)}

    def stream(self):
        for line in self.proc.stdout:
            yield line


class Handler(BaseHTTPRequestHandler):
    job = None

    def do_GET(self):
        if self.path == "/api/train/status":
            body = json.dumps(self.job.status()).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)
        elif self.path == "/api/train/logs":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for line in self.job.stream():
                self.wfile.write(f"data: {line}\n".encode())
        else:
            self.send_error(404)

    def log_message(self, fmt, *a):
        log.debug(fmt, *a)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--port", type=int, default=0)
    ap.add_argument("--steps", type=int, default=6000)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")

    Handler.job = TrainJob({"steps": args.steps})
    server = ThreadingHTTPServer(("127.0.0.1", args.port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    log.info("UI on http://127.0.0.1:%d", server.server_port)
    while Handler.job.status()["state"] == "running":
        log.info("job %s", Handler.job.status())
        time.sleep(5)
    log.info("job %s", Handler.job.status())


if __name__ == "__main__":
    main()
