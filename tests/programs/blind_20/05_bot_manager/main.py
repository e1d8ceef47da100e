"""A match: the game loop at 60 ticks a second and one bot manager process for each agent."""
import argparse
import logging
import math
import multiprocessing as mp
import tempfile
import time
from pathlib import Path

import walltime
from bot_manager import GAME_TICK, BotManager

log = logging.getLogger("match")

BOTS = [
    {"name": "Comet", "kind": "chaser"},
    {"name": "Viper", "kind": "chaser"},
    {"name": "Harbour", "kind": "goalie"},
]


def unpack_bot(root: Path, spec: dict, packages: int, modules: int) -> None:
    """Lay out the folder as its author shipped it."""
    folder = root / spec["name"].lower()
    (folder / "util").mkdir(parents=True)
    for name in ("bot.py", "util/vec.py", "util/orientation.py", "util/ball_prediction.py"):
        (folder / name).write_text(f"# {spec['name']}: {name}\n")
    (folder / "bot.cfg").write_text(f"[Locations]\nname = {spec['name']}\n")
    if spec["name"] == "Viper":
        site = folder / "venv" / "lib" / "python3.11" / "site-packages"
        for p in range(packages):
            pkg = site / f"package_{p:03d}"
            for sub in ("core", "tests"):
                (pkg / sub).mkdir(parents=True)
                for m in range(modules // 2):
                    (pkg / sub / f"mod_{m:02d}.py").write_text("")
    spec["directory"] = str(folder)


class Game:
    def __init__(self, cars: int, packet, controls):
        self.packet, self.controls = packet, controls
        self.state = [[20.0 * math.cos(i), 20.0 * math.sin(i), 0.0] for i in range(cars)]
        self.ball = [0.0, 0.0]
        self.frame = 0

    def tick(self) -> None:
        with self.controls.get_lock():
            controls = list(self.controls)
        for i, car in enumerate(self.state):
            throttle, steer, boost = controls[3 * i:3 * i + 3]
            car[2] += 2.5 * steer * GAME_TICK
            speed = throttle * (18.0 if boost else 12.0)
            car[0] += speed * math.cos(car[2]) * GAME_TICK
            car[1] += speed * math.sin(car[2]) * GAME_TICK
        self.frame += 1
        t = self.frame * GAME_TICK
        self.ball = [40.0 * math.sin(0.7 * t), 25.0 * math.cos(0.9 * t)]
        with self.packet.get_lock():
            self.packet[:] = [float(self.frame), *self.ball, *(v for car in self.state for v in car)]


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--match-seconds", type=float, default=105.0)
    p.add_argument("--report-every", type=float, default=5.0)
    p.add_argument("--packages", type=int, default=120)
    p.add_argument("--modules", type=int, default=60)
    p.add_argument("--limit", type=float, default=125.0)
    return p.parse_args()


def main() -> None:
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    walltime.arm(args.limit)
    ctx = mp.get_context("fork")
    packet = ctx.Array("d", 3 + 3 * len(BOTS))
    controls = ctx.Array("d", 3 * len(BOTS))
    updates = ctx.Array("q", len(BOTS))
    with tempfile.TemporaryDirectory(prefix="match_") as tmp:
        for spec in BOTS:
            unpack_bot(Path(tmp), spec, args.packages, args.modules)
        procs = []
        for i, spec in enumerate(BOTS):
            manager = BotManager(spec, i, packet, controls, updates, args.limit)
            procs.append(ctx.Process(target=manager.run, name=f"bot-{spec['name']}", daemon=True))
            procs[-1].start()
            log.info("%s runs in process %d", spec["name"], procs[-1].pid)
        game = Game(len(BOTS), packet, controls)
        end = time.monotonic() + args.match_seconds
        report, seen, frame = time.monotonic(), [0] * len(BOTS), 0
        due = time.monotonic()
        while time.monotonic() < end:
            game.tick()
            due += GAME_TICK
            now = time.monotonic()
            if now - report >= args.report_every:
                counts = list(updates)
                rates = ", ".join(
                    f"{s['name']} {(c - o) / (now - report):.0f}" for s, c, o in zip(BOTS, counts, seen))
                log.info("game %.0f Hz; updates a second: %s", (game.frame - frame) / (now - report), rates)
                report, seen, frame = now, counts, game.frame
            if due > now:
                time.sleep(due - now)
            else:
                due = now
        for proc in procs:
            proc.terminate()
            proc.join()


if __name__ == "__main__":
    main()
