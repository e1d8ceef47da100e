from telemetry.channel import TelemetryChannel, AsynchronousQueue
from telemetry.log import LoggingHandler, enable

__all__ = ["TelemetryChannel", "AsynchronousQueue", "LoggingHandler", "enable"]
