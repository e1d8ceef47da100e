"""A small offline mirror of the game wiki, served as html-ish pages."""
import random
import re
import time

KINDS = ("weapon", "character", "material")
FIELD = re.compile(r"<td class=\"(\w+)\">([^<]*)</td>")
TITLE = re.compile(r"<h1>([^<]+)</h1>")


class PageNotReady(RuntimeError):
    pass


class WikiMirror:
    def __init__(self, latency=0.12, seed=3):
        self.latency = latency
        self.seed = seed

    def index(self, kind, count):
        return [f"/{kind}/{n:04d}" for n in range(count)]

    def fetch(self, path):
        rng = random.Random(f"{self.seed}{path}")
        time.sleep(self.latency * rng.uniform(0.5, 1.5))
        _, kind, number = path.split("/")
        rarity = "" if int(number) % 97 == 41 else str(rng.randint(1, 5))
        cells = "".join(f'<td class="{k}">{v}</td>' for k, v in (
            ("rarity", rarity), ("attack", rng.randint(20, 700)), ("region", rng.choice("MLISNF"))))
        story = " ".join(rng.choices(("old", "sword", "wind", "river", "star", "vow"), k=400))
        return f"<h1>{kind} {number}</h1><table><tr>{cells}</tr></table><p>{story}</p>"


def parse_page(path, html):
    fields = dict(FIELD.findall(html))
    return {
        "path": path,
        "title": TITLE.search(html).group(1),
        "rarity": int(fields["rarity"]),
        "attack": int(fields["attack"]),
        "region": fields["region"],
        "words": len(html.split()),
    }
