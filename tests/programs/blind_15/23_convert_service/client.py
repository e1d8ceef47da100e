"""A batch client that sends documents all day long."""
import http.client
import json
import logging
import time

log = logging.getLogger("client")


def call(port, method, path, payload=None):
    conn = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        conn.request(method, path, body=json.dumps(payload) if payload is not None else None)
        response = conn.getresponse()
        return response.status, json.loads(response.read())
    finally:
        conn.close()


def run_client(port, name, seconds_between, delay):
    time.sleep(delay)
    n, received = 0, 0
    while True:
        _, task = call(port, "POST", "/v1alpha/convert/source/async",
                       {"source": f"https://archive.example/{name}/{n}.pdf", "options": {"pages": 4}})
        while True:
            _, status = call(port, "GET", f"/v1alpha/status/poll/{task['task_id']}")
            if status["task_status"] in ("success", "failure"):
                break
            time.sleep(0.05)
        _, answer = call(port, "GET", f"/v1alpha/result/{task['task_id']}")
        n += 1
        received += sum(len(p["text"]) for p in answer["document"]["pages"])
        if n % 25 == 0:
            log.info("%s: %d documents, %.1f MB of text", name, n, received / 1e6)
        time.sleep(seconds_between)
