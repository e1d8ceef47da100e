"""Devices, the device tree, and the handling of kernel events."""
import logging
import time

from threads import SynchronizedMeta

log = logging.getLogger("blivet")


class StorageDevice(metaclass=SynchronizedMeta):
    def __init__(self, name, size, parents=()):
        self.name = name
        self.size = size
        self.parents = list(parents)
        self.format_type = None
        self.uevents = 0

    def update_size(self, size):
        self.size = size
        self.uevents += 1

    def __str__(self):
        return "%s (%d MiB, format %s, %d events)" % (self.name, self.size, self.format_type, self.uevents)


class DeviceTree(metaclass=SynchronizedMeta):
    def __init__(self):
        self.devices = {}

    def add(self, device):
        self.devices[device.name] = device

    def get(self, name):
        return self.devices.get(name)

    def disks(self):
        return [self.devices[name] for name in sorted(self.devices)]

    def populate(self, infos, settle):
        for info in infos:
            self.add(StorageDevice(info["name"], info["size"]))
            log.info("found %s", info["name"])
            time.sleep(settle)

    def handle_event(self, event):
        device = self.get(event["name"])
        if event["action"] == "add" and device is None:
            device = StorageDevice(event["name"], event["size"])
            self.add(device)
            log.info("added %s", device)
            return
        if device is None:
            log.warning("event for unknown device %s", event["name"])
            return
        device.update_size(event["size"])
        device.format_type = self.probe_format(device)
        log.debug("%s: format is %s", device.name, device.format_type)

    def probe_format(self, device):
        time.sleep(0.035)
        return ("xfs", "ext4", "swap")[device.uevents % 3]
