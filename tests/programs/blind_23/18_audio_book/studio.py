import logging
import multiprocessing as mp
import os
import pathlib
import threading

from voices import load_voice

log = logging.getLogger("studio")


def narrate(name, pack, logs, inbox, results, lifetime):
    timer = threading.Timer(lifetime, os._exit, args=(0,))
    timer.daemon = True
    timer.start()
    trace_file = open(pathlib.Path(logs) / f"{name}.stacks", "w")
    voice = load_voice(pack, name, trace_file)
    while True:
        job = inbox.get()
        if job is None:
            break
        number, text = job
        audio = voice.speak(text)
        results.put((number, name, len(audio), float(abs(audio).max())))


class Studio:
    """One process for each voice; the lines of a chapter go to the voice of their speaker."""

    def __init__(self, names, pack, logs, lifetime):
        self.results = mp.Queue()
        self.inboxes = {name: mp.Queue() for name in names}
        self.processes = [
            mp.Process(target=narrate, name=name, daemon=True,
                       args=(name, pack, logs, self.inboxes[name], self.results, lifetime))
            for name in names]
        for process in self.processes:
            process.start()
        log.info("voices: %s", {p.name: p.pid for p in self.processes})

    def record(self, lines):
        """Audio lengths of all lines, in order."""
        for number, (speaker, text) in enumerate(lines):
            self.inboxes[speaker].put((number, text))
        lengths = [None] * len(lines)
        for _ in lines:
            number, _, length, _ = self.results.get()
            lengths[number] = length
        return lengths

    def close(self):
        for inbox in self.inboxes.values():
            inbox.put(None)
        for process in self.processes:
            process.join(5)
