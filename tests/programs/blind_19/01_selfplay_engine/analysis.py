import itertools
import json
import logging
import os
import subprocess
import sys
import threading

log = logging.getLogger("analysis")


class AnalysisEngine:
    """Talks to the engine subprocess. Replies are handed to the callback of their query."""

    def __init__(self, visits=4):
        self.visits = visits
        self.counter = itertools.count()
        self.queries = {}
        self.answered = 0
        self.write_lock = threading.Lock()
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "engine.py")
        env = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
        self.process = subprocess.Popen(
            [sys.executable, "-u", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
        )
        self.reader = threading.Thread(target=self._read_replies, name="engine-reader", daemon=True)
        self.reader.start()
        log.info("engine started, pid %d", self.process.pid)

    def request_analysis(self, position, callback):
        query_id = "Q%d" % next(self.counter)
        query = {
            "id": query_id,
            "rules": "japanese",
            "komi": 6.5,
            "boardXSize": 19,
            "boardYSize": 19,
            "maxVisits": self.visits,
            "includePolicy": True,
            "moves": position.moves,
            "avoidMoves": [{"player": c, "moves": position.occupied(), "untilDepth": 1} for c in "BW"],
            "overrideSettings": {"maxTime": 1000.0, "wideRootNoise": 0.04},
        }
        self.queries[query_id] = callback
        self._send(query)

    def _send(self, query):
        payload = (json.dumps(query) + "\n").encode()
        with self.write_lock:
            self.process.stdin.write(payload)
            self.process.stdin.flush()

    def _read_replies(self):
        for line in self.process.stdout:
            reply = json.loads(line)
            callback = self.queries.pop(reply["id"], None)
            if callback is None:
                log.warning("reply to unknown query %s", reply["id"])
                continue
            self.answered += 1
            callback(reply)

    def shutdown(self):
        self.process.kill()
        self.process.wait()
