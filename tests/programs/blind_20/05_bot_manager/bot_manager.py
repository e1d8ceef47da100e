"""Runs one agent in its own process: reads packets, writes controls, reloads the agent when its files change."""
import glob
import logging
import os
import time

import walltime
from bots import AGENTS

log = logging.getLogger("bots")

GAME_TICK = 1.0 / 60.0


class BotManager:
    def __init__(self, spec, index: int, packet, controls, updates, limit: float):
        self.spec = spec
        self.index = index
        self.packet = packet
        self.controls = controls
        self.updates = updates
        self.limit = limit
        self.agent = None
        self.last_modification_time = 0.0

    def load_agent(self) -> None:
        self.agent = AGENTS[self.spec["kind"]](self.spec["name"], self.index)

    def check_modification_time(self, directory: str) -> bool:
        """True when a python file below the directory changed since the last look."""
        files = glob.glob(os.path.join(directory, "**", "*.py"), recursive=True)
        newest = max((os.stat(f).st_mtime for f in files), default=0.0)
        changed = newest > self.last_modification_time
        self.last_modification_time = max(newest, self.last_modification_time)
        return changed

    def read_packet(self) -> list[float]:
        with self.packet.get_lock():
            return list(self.packet)

    def send_controls(self, out) -> None:
        base = 3 * self.index
        with self.controls.get_lock():
            self.controls[base] = out.throttle
            self.controls[base + 1] = out.steer
            self.controls[base + 2] = float(out.boost)

    def run(self) -> None:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
        walltime.arm(self.limit)
        self.load_agent()
        self.check_modification_time(self.spec["directory"])
        last_frame = -1.0
        while True:
            before = time.monotonic()
            packet = self.read_packet()
            if packet[0] != last_frame:
                last_frame = packet[0]
                if self.check_modification_time(self.spec["directory"]):
                    log.info("reloading %s", self.spec["name"])
                    self.load_agent()
                self.send_controls(self.agent.get_output(packet))
                with self.updates.get_lock():
                    self.updates[self.index] += 1
            pause = GAME_TICK - (time.monotonic() - before)
            if pause > 0:
                time.sleep(pause)
