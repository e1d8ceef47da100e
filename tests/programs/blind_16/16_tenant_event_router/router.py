import logging
import uuid

import telemetry

log = logging.getLogger("router")


class Session:
    """One tenant session: its log records go to a telemetry key of its own."""

    def __init__(self, tenant, events, telemetry_path):
        self.key = f"{tenant}-{uuid.uuid4().hex}"
        self.events = events
        self.path = telemetry_path
        self.handler = None

    def __enter__(self):
        self.handler = telemetry.enable(self.key, self.path)
        return self

    def __exit__(self, *exc):
        logging.getLogger().removeHandler(self.handler)
        self.handler = None

    def route(self):
        counts = {}
        for ev in self.events:
            target = "%s/%d" % (ev["kind"], ev["device"] % 8)
            counts[target] = counts.get(target, 0) + 1
            log.info("routed %s to %s", ev["id"], target, extra={"payload": ev["body"]})
        return counts
