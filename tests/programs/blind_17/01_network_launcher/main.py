"""Runs one or more network trainings from a queue of presets and shows their progress."""
import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

log = logging.getLogger("launcher")

PRESETS = {
    "character_lora": {"dim": 16, "images": 1600, "repeats": 10, "batch_size": 4, "lr": 1e-3, "workers": 2},
    "style_lora": {"dim": 32, "images": 900, "repeats": 6, "batch_size": 4, "lr": 5e-4, "workers": 2},
}


class TrainingJob:
    """A training started as its own process; its standard output carries JSON progress lines."""

    def __init__(self, name, preset, out_dir):
        self.name = name
        self.preset = preset
        self.out_dir = Path(out_dir) / name
        self.out_dir.mkdir(parents=True, exist_ok=True)
        self.proc = None
        self.last_step = 0
        self.last_loss = None

    def command(self):
        config = self.out_dir / "config.json"
        config.write_text(json.dumps(dict(self.preset, output_dir=str(self.out_dir))))
        script = Path(__file__).resolve().parent / "train_network.py"
        return [sys.executable, "-u", str(script), "--config", str(config)]

    def start(self):
        cmd = self.command()
        log.info("starting %s: %s", self.name, " ".join(cmd))
        env = dict(os.environ, OMP_NUM_THREADS="1")
        self.proc = subprocess.Popen(
            cmd,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )

    def follow(self, on_progress):
        for line in self.proc.stdout:
            line = line.strip()
            if not line.startswith("{"):
                if line:
                    log.info("[%s] %s", self.name, line)
                continue
            event = json.loads(line)
            self.last_step = event["step"]
            self.last_loss = event["loss"]
            on_progress(self, event)
        code = self.proc.wait()
        if code != 0:
            tail = self.proc.stderr.read().splitlines()[-20:]
            log.error("%s failed with code %d\n%s", self.name, code, "\n".join(tail))
        return code

    def kill(self):
        if self.proc is not None and self.proc.poll() is None:
            self.proc.kill()


class JobQueue:
    def __init__(self, out_dir):
        self.out_dir = out_dir
        self.jobs = []
        self.current = None
        self.started = time.monotonic()

    def add(self, name):
        self.jobs.append(TrainingJob(name, PRESETS[name], self.out_dir))

    def on_progress(self, job, event):
        if event["step"] % 20 == 0:
            log.info("[%s] epoch %d/%d step %d loss %.4f", job.name, event["epoch"], event["epochs"],
                     event["step"], event["loss"])

    def run(self):
        failed = 0
        for job in self.jobs:
            self.current = job
            job.start()
            failed += job.follow(self.on_progress) != 0
            log.info("%s finished after %d steps, %.0f s in all", job.name, job.last_step,
                     time.monotonic() - self.started)
        return failed


def enforce_session_limit(queue, seconds):
    def expire():
        time.sleep(seconds)
        log.warning("session limit of %d s reached", seconds)
        if queue.current is not None:
            queue.current.kill()
        os._exit(0)

    threading.Thread(target=expire, name="session-limit", daemon=True).start()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", nargs="+", default=["character_lora", "style_lora"], choices=sorted(PRESETS))
    parser.add_argument("--out", default=None)
    parser.add_argument("--session-limit", type=int, default=130)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    out_dir = args.out or tempfile.mkdtemp(prefix="networks_")
    queue = JobQueue(out_dir)
    for name in args.jobs:
        queue.add(name)
    enforce_session_limit(queue, args.session_limit)
    sys.exit(queue.run())


if __name__ == "__main__":
    main()
