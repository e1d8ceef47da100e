"""Serves the live report of a run over HTTP; the run asks it to stop when it is done."""
import http.server
import json
import logging
import threading

log = logging.getLogger("report")


class ReportHandler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/scalar":
            self.server.scalars.append(body)
        elif self.path == "/finish":
            log.info("run finished, %d scalars received", len(self.server.scalars))
            self.server.shutdown()
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


class ReportServer(http.server.HTTPServer):
    def __init__(self):
        super().__init__(("127.0.0.1", 0), ReportHandler)
        self.scalars = []

    def start(self):
        self.thread = threading.Thread(target=self.serve_forever, name="report-server")
        self.thread.start()
        return self.server_address[1]
