import logging
import multiprocessing as mp
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

TOOL = Path(__file__).with_name("wavpack.py")


@dataclass
class Result:
    source: str
    returncode: int
    seconds: float
    tail: str = ""


@dataclass
class ProgressParser:
    """Understands the key=value lines that the converter prints while it works."""
    values: dict = field(default_factory=dict)
    tail: str = ""

    def feed(self, line):
        line = line.strip()
        key, sep, value = line.partition("=")
        if sep and key.isidentifier():
            self.values[key] = value
        elif line:
            self.tail = line

    @property
    def seconds(self):
        return float(self.values.get("out_time", 0.0))


class Converter:
    """One run of the converter; it can be told to stop early with the key q."""

    def __init__(self, source, target, rate):
        self.source = source
        self.cmd = [sys.executable, str(TOOL), "--rate", str(rate), "--in", str(source), "--out", str(target)]
        self.parser = ProgressParser()
        self.process = None

    def run(self, on_progress=None):
        self.process = subprocess.Popen(self.cmd, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, bufsize=1)
        for line in self.process.stdout:
            self.parser.feed(line)
            if on_progress:
                on_progress(self.parser.seconds)
        code = self.process.wait()
        return Result(str(self.source), code, self.parser.seconds, self.parser.tail)

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.stdin.write("q\n")
            self.process.stdin.flush()


class TranscodeWorker(mp.Process):
    def __init__(self, index, todo, results, target_dir, rate):
        super().__init__(name=f"transcode-{index}")
        self.todo = todo
        self.results = results
        self.target_dir = target_dir
        self.rate = rate

    def _follow_parent(self, parent):
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(0)

    def run(self):
        log = logging.getLogger("transcoder.worker")
        threading.Thread(target=self._follow_parent, args=(os.getppid(),), daemon=True).start()
        while True:
            source = self.todo.get()
            if source is None:
                break
            target = self.target_dir / f"{source.stem}.wvz"
            log.info("converting %s/%s", source.parent.name, source.name)
            result = Converter(source, target, self.rate).run()
            self.results.put(result)
