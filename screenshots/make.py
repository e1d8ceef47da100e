"""Makes the pictures of the README: real programs are recorded, replayed, and drawn.

    python screenshots/make.py             all pictures
    python screenshots/make.py waits       only these

Each picture is written as SVG and PNG beside this file. Needs the extras `test` (for torch) and
`shots`, and Fira Code (Debian: fonts-firacode) for the PNG.
"""

from __future__ import annotations

import asyncio
import glob
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mpwatch.demo import catalogue
from mpwatch.demo.catalogue import Scenario
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Snapshot
from mpwatch.observe.recording.file import Recording
from mpwatch.observe.recording.timeline import Timeline
from mpwatch.observe.sources.replay import ReplaySource
from mpwatch.observe.sources.source import Pause, Seek
from mpwatch.tui.app import MpwatchApp

HERE = Path(__file__).parent
FONTS = "/usr/share/fonts/truetype/firacode/FiraCode-*.ttf"
READY_S = 90.0
SPARE_S = 12.0
"""Recorded beyond what the scenario needs, so that trends have something to show."""


@dataclass(frozen=True)
class Shot:
    """One picture: a page at one time of a recorded program."""

    name: str
    scenario: str
    keys: tuple[str, ...] = ()
    size: tuple[int, int] = (120, 30)
    on_worker: bool = False
    """Put the cursor on the process the worst finding is about, rather than on main."""


SHOTS = (
    Shot("overview", "fd-exhaustion-receiver", size=(120, 36)),
    Shot("finding", "fd-exhaustion-receiver", ("shift+tab", "home", "enter"), (120, 24)),
    Shot("files", "fd-exhaustion-receiver", ("3",), (120, 24)),
    Shot("waits", "queue-join-feeder-deadlock", ("6",), (120, 24)),
    Shot("loader", "straggler-worker", ("4",), (120, 20)),
    Shot("flows", "unreused-buffers-copied", ("5",), (120, 16)),
    Shot("shm", "shm-full-enospc", ("2",), (120, 24)),
    Shot("process", "straggler-worker", ("enter",), (120, 30), on_worker=True),
    Shot("merged", "straggler-worker", ("m",), (120, 22)),
)


def record(scenario: Scenario, path: str) -> None:
    """Run a demonstration with the hook and record it until it has shown its failure."""
    _, *argv = catalogue.command(scenario, sys.executable)
    command = [sys.executable, "-m", "mpwatch", "run", "--headless", "--record", path, *argv]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        _wait_for_ready(program)
        _wait(program, scenario.shows_s + SPARE_S)
    finally:
        # A program that is stuck on purpose may not hear the first signal.
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
            if program.poll() is None:
                program.send_signal(number)
                _wait(program, 10.0)


def _wait_for_ready(program: subprocess.Popen[bytes]) -> None:
    assert program.stdout is not None
    deadline = threading.Timer(READY_S, program.kill)
    deadline.start()
    for line in program.stdout:
        if line.startswith(b"ready"):
            break
    deadline.cancel()
    # What it prints from here on is thrown away, so that it is never halted by a full pipe.
    threading.Thread(target=program.stdout.read, daemon=True).start()


def _wait(program: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        program.wait(seconds)
    except subprocess.TimeoutExpired:
        return


def best_moment(path: str, rules: Sequence[str]) -> float:
    """The last sample at which the failure was named and the root process was running, in seconds.

    Raises:
        SystemExit: The failure was never named: the picture would show nothing.
    """
    found: list[tuple[tuple[int, bool], float]] = []

    def judge(snapshot: Snapshot) -> None:
        unresolved = {f.rule for f in snapshot.findings if f.resolved_s is None}
        is_alive = snapshot.root in {p.process for p in snapshot.living()}
        named = is_alive * (1 + len(unresolved.intersection(rules)))
        # On a busy machine a hook may answer late for a moment, which is not what is to be shown.
        are_answering = all(p.hook.state != "silent" for p in snapshot.living())
        found.append(((named, are_answering), timeline.at_s))

    with Recording(path) as recording:
        timeline = Timeline(recording, keeps=False)
        while not timeline.is_at_end:
            timeline.step(1)
            judge(timeline.snapshot())
    best = max(score for score, _ in found)
    if best[0] < 2:
        raise SystemExit(f"{path}: none of {', '.join(rules)} was found; is the machine busy?")
    return max(at_s for score, at_s in found if score == best)


async def draw(shot: Shot, path: str, at_s: float) -> str:
    """Open the page as a user would, and return the screen as SVG."""
    source = ReplaySource(path, is_paused=True)
    app = MpwatchApp(source, title=shot.scenario, readonly=True)
    async with app.run_test(size=shot.size) as pilot:
        app.view_state.ask(Seek(at_s))
        app.view_state.ask(Pause(True))
        await _until_shown(app, at_s)
        await pilot.pause()
        if shot.on_worker:
            app.dashboard.overview.unfold_to(_worst(app))
        for key in shot.keys:
            await pilot.press(key)
            await pilot.pause()
        await pilot.pause()
        return app.export_screenshot(title=f"mpwatch replay {shot.scenario}")


async def _until_shown(app: MpwatchApp, at_s: float) -> None:
    end_s = time.monotonic() + 60
    while time.monotonic() < end_s:
        view = app.view_state.view
        playback = view.snapshot.playback if view else None
        if playback is not None and playback.at_s >= at_s - 0.01:
            return
        await asyncio.sleep(0.1)
    raise SystemExit(f"The replay did not reach {at_s:.1f} s.")


def _worst(app: MpwatchApp) -> ProcessId:
    view = app.view_state.view
    assert view is not None
    workers = {p.process for p in view.snapshot.living() if p.role == "loader-worker"}
    about = [f.process for f in view.snapshot.findings if f.process in workers]
    return about[0] if about and about[0] is not None else min(workers)


def write(name: str, svg: str) -> None:
    """Write a picture in both forms."""
    try:
        import resvg_py
    except ImportError:
        raise SystemExit("PNGs need resvg: pip install -e '.[test,shots]'") from None

    (HERE / f"{name}.svg").write_text(svg)
    fonts = sorted(glob.glob(FONTS))
    if not fonts:
        raise SystemExit(f"No fonts at {FONTS}; on Debian: apt install fonts-firacode")
    png = resvg_py.svg_to_bytes(
        svg_string=svg, font_files=fonts, font_family="Fira Code", monospace_family="Fira Code"
    )
    (HERE / f"{name}.png").write_bytes(bytes(png))


def main(names: Sequence[str]) -> None:
    """Make the pictures named, or all."""
    wanted = [shot for shot in SHOTS if not names or shot.name in names]
    with tempfile.TemporaryDirectory() as folder:
        for scenario in dict.fromkeys(shot.scenario for shot in wanted):
            found = catalogue.find(scenario)
            path = os.path.join(folder, f"{scenario}.mpw")
            print(f"{scenario}: recording", flush=True)
            record(found, path)
            at_s = best_moment(path, found.expected)
            for shot in (each for each in wanted if each.scenario == scenario):
                write(shot.name, asyncio.run(draw(shot, path, at_s)))
                print(f"{scenario}: {shot.name} at {at_s:.1f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
