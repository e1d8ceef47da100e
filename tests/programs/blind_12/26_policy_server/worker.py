import json
import logging
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

from leader import LeaderElection

log = logging.getLogger("worker")


class PolicyHandler(BaseHTTPRequestHandler):
    def do_GET(self):
        user = self.path.rsplit("/", 1)[-1]
        allowed = sum(map(ord, user)) % 3 != 0
        body = json.dumps({"user": user, "allow": allowed, "policy": self.server.policy_version}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.server.answered += 1

    def log_message(self, *args):
        pass


class PolicyWorker:
    """Serves decisions; the one that is elected also watches the policy repository."""

    def __init__(self, listener, lock_path, version, interval):
        self.httpd = HTTPServer(listener.getsockname(), PolicyHandler, bind_and_activate=False)
        self.httpd.socket.close()
        self.httpd.socket = listener
        self.httpd.answered = 0
        self.httpd.policy_version = 0
        self.version = version
        self.interval = interval
        self.election = LeaderElection(lock_path, self.watch_policies)

    def watch_policies(self):
        while True:
            time.sleep(self.interval)
            with self.version.get_lock():
                self.version.value += 1
            log.info("published policy version %d", self.version.value)

    def follow(self):
        while True:
            self.httpd.policy_version = self.version.value
            time.sleep(1.0)

    def serve(self):
        self.election.start()
        threading.Thread(target=self.follow, name="policy-follow", daemon=True).start()
        self.httpd.serve_forever()


def worker_main(listener, lock_path, version, interval):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    PolicyWorker(listener, lock_path, version, interval).serve()
