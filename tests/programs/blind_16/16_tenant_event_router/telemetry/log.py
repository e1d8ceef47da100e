import logging

from telemetry.channel import AsynchronousQueue, FileSender, TelemetryChannel, TelemetryContext

enabled_instrumentation_keys = {}


class LoggingHandler(logging.Handler):
    def __init__(self, instrumentation_key, path):
        super().__init__()
        context = TelemetryContext(instrumentation_key)
        self.channel = TelemetryChannel(context, AsynchronousQueue(FileSender(path)))

    def emit(self, record):
        properties = {"level": record.levelname, "logger": record.name, "line": record.lineno}
        payload = getattr(record, "payload", None)
        if payload is not None:
            properties["payload"] = payload
        self.channel.write({"message": record.getMessage(), "properties": properties}, record.created)

    def flush(self):
        self.channel.queue.flush()


def enable(instrumentation_key, path, level=logging.INFO):
    """Attach a handler for the key to the root logger and return it."""
    if not instrumentation_key:
        raise Exception("Instrumentation key was required but not provided")
    if instrumentation_key in enabled_instrumentation_keys:
        logging.getLogger().removeHandler(enabled_instrumentation_keys[instrumentation_key])
    handler = LoggingHandler(instrumentation_key, path)
    handler.setLevel(level)
    enabled_instrumentation_keys[instrumentation_key] = handler
    logging.getLogger().addHandler(handler)
    return handler
