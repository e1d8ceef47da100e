"""Calls that give the same in each round of a loop, and walks over what only grows."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import pytest

from mpwatch.collect.source.call_graph import program_of
from mpwatch.collect.source.growth.holders import growing_in
from mpwatch.collect.source.same_again import AGAIN, same_again
from mpwatch.collect.source.syntax import ParsedFile
from mpwatch.model.source_code import Again


def again(**files: str) -> Sequence[Again]:
    """What a program of these files does again."""
    parsed = [
        (f"/home/me/{name}.py", ParsedFile(tuple(text.splitlines()), ast.parse(text)))
        for name, text in files.items()
    ]
    program = program_of(parsed)
    assert program is not None
    return [*same_again(program), *growing_in(program)[1]]


def words(**files: str) -> list[str]:
    """Their kinds and expressions."""
    return [f"{each.kind} {each.text}" for each in again(**files)]


DATASET = """\
import numpy as np
from torch.utils.data import Dataset


class Tiles(Dataset):
    def __init__(self, root, split):
        self.path = os.path.join(root, f"{split}.npz")
        self.preload = False

    def __getitem__(self, index):
        if self.preload:
            return self.tiles[index]
        return self._tile(index)

    def _tile(self, index):
        tiles = np.load(self.path)
        return tiles["x"][index]
"""


def test_a_file_of_which_each_item_takes_a_part_is_read_again() -> None:
    found, member = again(data=DATASET)

    assert (member.kind, member.text, member.statement.line) == ("reads", "tiles['x']", 17)
    assert (found.kind, found.text) == ("reads", "np.load(self.path)")
    assert (found.function, found.statement.line) == ("_tile", 16)
    assert [(each.name, each.how, each.line) for each in found.fixed] == [
        ("self.path", "attribute", 7)
    ]
    assert (found.round, found.outside) == (None, "__getitem__")


MODEL = """\
import sentencepiece as spm


class Batches:
    def __init__(self, texts, model_path):
        self.texts = texts
        self.pieces = spm.SentencePieceProcessor(model_file=model_path)


class Punctuator:
    def __init__(self, model_path):
        self._model_path = model_path

    def infer(self, texts):
        return run(Batches(texts, self._model_path))
"""
SERVE = """\
from model import Punctuator


def main(args, queue):
    punctuator = Punctuator(args.model)
    while True:
        punctuator.infer(queue.get())
"""


def test_what_an_object_of_each_round_builds_is_followed_through_calls_and_files() -> None:
    (found,) = again(model=MODEL, serve=SERVE)

    assert found.text == "spm.SentencePieceProcessor(model_file=model_path)"
    assert [(each.name, each.how) for each in found.fixed] == [("self._model_path", "attribute")]
    assert found.round is not None
    assert (found.round.first, found.round.by) == (6, ("infer", "__init__"))


@pytest.mark.parametrize(
    "changed",
    [
        ("self._model_path)", "texts.path)"),
        ("infer(queue.get())", "infer(queue.get())\n        punctuator._model_path = other()"),
        ("        punctuator.infer", "        Punctuator(queue.get()).infer"),
        ("        punctuator.infer(queue.get())", "        return punctuator.infer(queue.get())"),
    ],
)
def test_what_a_round_may_give_another_value_is_not_the_same(changed: tuple[str, str]) -> None:
    assert not again(model=MODEL.replace(*changed), serve=SERVE.replace(*changed))


LOOP = """\
import json, os, pickle, time
import jinja2, numpy as np, pandas as pd, torch
from functools import cache
TABLE = "table.csv"
known = {}
env = jinja2.Environment()


def main(path, rows, model):
    opened = open(path)
    for row in rows:
        STATEMENT
        use(row)
"""


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("pd.read_csv(TABLE)", ["reads pd.read_csv(TABLE)"]),
        ("x = torch.load(f'{path}.pt')[row]", ["reads torch.load(f'{path}.pt')"]),
        ("words = json.load(open(TABLE))", ["reads json.load(open(TABLE))"]),
        ("with open(path) as f: words = f.read()", ["reads f.read()"]),
        (
            "env.from_string('<b>{{ x }}</b>').render()",
            ["builds env.from_string('<b>{{ x }}</b>')"],
        ),
        (
            "n = sum(p.numel() for p in model.parameters())",
            ["counts sum((p.numel() for p in model.parameters()))"],
        ),
        ("pd.read_csv(row)", []),
        ("pd.read_csv(TABLE, chunksize=10)", []),
        ("np.load(path, mmap_mode='r')", []),
        ("json.load(opened)", []),
        ("opened.read()", []),
        ("open('/proc/meminfo').read()", []),
        ("known[row] = known.get(row) or torch.load(path)", []),
        ("if row not in known: known[row] = torch.load(path)", []),
        ("if row % 100 == 0: torch.load(path)", []),
        ("torch.load(path); time.sleep(5)", []),
        ("torch.load(path); torch.save(row, path)", []),
        ("torch.load(path); break", []),
        ("make = lambda: torch.load(path)", []),
        ("path = row.path; torch.load(path)", []),
        ("pd.read_sql(TABLE, path)", []),
        ("env.from_string(row)", []),
        ("[pd.read_csv(name) for name in row]", []),
    ],
)
def test_what_a_loop_reads_or_builds_again(statement: str, told: list[str]) -> None:
    assert words(main=LOOP.replace("STATEMENT", statement)) == told


@pytest.mark.parametrize(
    "text",
    [
        "import torch\n@cache\ndef load():\n    return torch.load('a.pt')\n"
        "def main():\n    while True:\n        load()\n",
        "import torch\ndef load(key):\n    try:\n        return KNOWN[key]\n"
        "    except KeyError:\n        KNOWN[key] = torch.load('a.pt')\n"
        "def main():\n    while True:\n        load(1)\n",
        "import torch\ndef load(key):\n    if key in KNOWN:\n        return KNOWN[key]\n"
        "    KNOWN[key] = torch.load('a.pt')\n    return KNOWN[key]\nKNOWN = {}\n"
        "def main():\n    while True:\n        load(1)\n",
        "import torch\nclass A:\n    def __init__(self, path):\n        self.path = path\n"
        "        self.kept = None\n    def get(self):\n        if self.kept is None:\n"
        "            self.kept = torch.load(self.path)\n        return self.kept\n"
        "def main():\n    a = A('x')\n    while True:\n        a.get()\n",
        "import torch\nclass Part:\n    def __init__(self, path):\n        self.path = path\n"
        "    def read(self):\n        return torch.load(self.path)\n"
        "def main(parts):\n    while True:\n        for part in parts:\n            part.read()\n",
        "import torch, hydra\n@hydra.main()\ndef main(cfg):\n    torch.load('a.pt')\n",
        "import torch\ndef run(rank):\n    torch.load('a.pt')\ndef main():\n"
        "    for rank in range(8):\n        Process(target=run, args=(rank,)).start()\n",
        "import torch\nclass H(BaseHTTPRequestHandler):\n    def do_GET(self):\n"
        "        return open(self.path).read()\n",
    ],
)
def test_what_is_kept_or_done_once_or_is_another_object_each_time_is_not_told(text: str) -> None:
    assert not again(main=text)


def test_a_condition_that_no_round_changes_is_none() -> None:
    text = DATASET.replace(
        "        tiles = np", "        if not index:\n            return 0\n        tiles = np"
    )

    assert words(data=text)[0] == "reads np.load(self.path)"
    assert not again(data=text.replace("if not index", "if self.tiles is not None"))


def test_a_column_is_asked_only_of_libraries_that_make_it() -> None:
    text = "import datasets\ndef main(data):\n    for i in range(9):\n        data['text'][i]\n"

    assert words(main=text) == ["column data['text'][i]"]
    assert not again(main=text.replace("import datasets", "import json"))


SENDS = """\
def main(pool, queue, table, weights, rows, args, remotes):
    for row in rows:
        {}
"""


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("jobs.append(pool.submit(work, weights, row))", ["weights"]),
        ("pool.apply_async(work, (table, 3))", ["table"]),
        ("jobs = [each.step.remote(weights) for each in remotes]", ["weights"]),
        ("queue.put(row)", []),
        ("pool.submit(work, row, args)", []),
        ("pool.submit(work, row, args.episodes)", []),
        ("pool.submit(work, weights); optimizer.step()", []),
        ("weights[row] = 1; queue.put(weights)", []),
        ("weights = new(row); queue.put(weights)", []),
        ("queue.put(weights, timeout=1); break", []),
        ("pool.submit(work, lock, pool.path, callback=table.add)", []),
    ],
)
def test_what_a_loop_sends_again(statement: str, names: list[str]) -> None:
    found = again(main=SENDS.format(statement))

    assert [each.name for one in found for each in one.fixed] == names


HISTORY = """\
class History:
    def __init__(self):
        self.events = []

    def add(self, event):
        self.events.append(event)

    def cost(self):
        total = 0
        for event in self.events:
            total += event.cost
        return total

    def text(self):
        return as_text(self.events)

    def forget(self):
        self.events.clear()


def as_text(messages):
    return [message.to_dict() for message in messages]


def main(agent):
    history = History()
    for step in range(1000):
        history.add(agent.run())
        history.cost()
        history.text()
"""


def test_a_walk_over_what_only_grows_is_found_also_through_an_argument() -> None:
    first, second = again(main=HISTORY)

    assert (first.kind, first.text, first.statement.line, first.last) == (
        "walks",
        "self.events",
        10,
        11,
    )
    assert (second.text, second.function) == ("messages", "as_text")
    assert first.adds is not None
    assert first.adds.statement.text == "self.events.append(event)"
    assert first.round is not None
    assert first.round.first == 27


@pytest.mark.parametrize(
    "changed",
    [
        ("        history.text()\n", "        history.text()\n        history.forget()\n"),
        ("            total += event.cost", "            if event.cost: return event"),
        ("        history.cost()\n", "        if step % 100 == 0:\n            history.cost()\n"),
        ("self.events = []", "self.events = deque(maxlen=10)"),
        ("self.events.append", "if len(self.events) < 9: self.events.append"),
        ("in self.events:", "in self.events[-9:]:"),
        (
            "        history.add(agent.run())\n",
            "        pass\n    history.add(1)\n    while True:\n",
        ),
    ],
)
def test_a_walk_over_what_is_bounded_or_seldom_gone_through_is_not_told(
    changed: tuple[str, str],
) -> None:
    text = HISTORY.replace("        history.text()\n", "") if "text" not in changed[0] else HISTORY

    assert not again(main=text.replace(*changed))


def test_objects_that_are_made_once_do_not_grow_with_calls_of_their_names() -> None:
    text = (
        "class Group:\n    def __init__(self, makers):\n        self.parts = []\n"
        "        for each in makers:\n            self.parts.append(each())\n"
        "            Process(target=serve, args=(self,)).start()\n"
        "    def step(self):\n        return [each.step() for each in self.parts]\n"
        "def serve(group):\n    while True:\n        group.step()\n"
    )

    assert not again(main=text)


def test_a_program_of_any_shape_gives_no_more_than_a_bounded_number() -> None:
    reads = "".join(f"        np.load('{number}.npy')\n" for number in range(3 * AGAIN))

    assert len(again(main=f"import numpy as np\ndef main():\n    while True:\n{reads}")) == AGAIN


def in_rounds(*lines: str, before: Sequence[str] = (), top: str = "") -> str:
    """A function with statements before a loop, and in it."""
    first = "".join(f"    {each}\n" for each in before)
    body = "".join(f"        {each}\n" for each in lines)
    main = f"def main():\n{first}    for seed in range(10):\n{body}"
    return f'{top}\n\n{main}\n\nif __name__ == "__main__":\n    main()\n'


def test_a_variable_or_another_class_with_the_name_of_what_builds() -> None:
    loaded = "pipeline = StableDiffusionPipeline.from_pretrained('x')"
    line = "image = pipeline('a cat')"

    assert words(main=in_rounds(line, before=[loaded])) == []
    top = "from transformers import pipeline"
    assert words(main=in_rounds("pipe = pipeline('ner')", top=top)) == ["builds pipeline('ner')"]
    assert words(main=in_rounds("env = Environment()", top="from salabim import Environment")) == []
    made = words(main=in_rounds("env = Environment()", top="from jinja2 import Environment"))
    assert made == ["builds Environment()"]


TABLE = """\
import numpy as np

KNOWN = {{}}
PATH = "/data/table.npy"


def table():
    {asks}
    value = np.load(PATH)
    KNOWN[PATH] = value
    return value
{after}

def main():
    for number in range(10):
        use(table()[number])


if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    ("asks", "after"),
    [
        ("try:\n        return KNOWN[PATH]\n    except KeyError:\n        pass", ""),
        ("with suppress(KeyError):\n        return KNOWN[PATH]", ""),
        ("pass", "table = functools.lru_cache(None)(table)\n"),
    ],
)
def test_a_function_that_keeps_what_it_has_read(asks: str, after: str) -> None:
    assert words(main=TABLE.format(asks=asks, after=after)) == []
    assert words(main=TABLE.format(asks="pass", after="")) == ["reads np.load(PATH)"]


PUBLISH = """\
import torch


def publish(net, path):
    torch.save(net.state_dict(), path + ".new")
    os.replace(path + ".new", path)
"""


@pytest.mark.parametrize("target", ["WEIGHTS", "os.path.join(folder, 'weights.pt')"])
def test_a_file_that_another_function_writes_by_the_name_of_its_argument(target: str) -> None:
    acts = in_rounds(
        "net.load_state_dict(torch.load(WEIGHTS))", top="WEIGHTS = '/run/weights.pt'\nnet = make()"
    )
    learns = f"def learn(net, folder):\n    publish(net, {target})\n\nlearn(net, '/run')\n"

    assert words(main=acts + learns, learner=PUBLISH) == []
    assert words(main=acts, learner=PUBLISH) == ["reads torch.load(WEIGHTS)"]


@pytest.mark.parametrize(
    ("line", "is_told"),
    [("pass", True), ("state.update(step=seed)", False), ("weights.append(state)", True)],
)
def test_what_a_method_changes_before_it_is_sent(line: str, is_told: bool) -> None:
    text = in_rounds(line, "q.put(state)", before=["state = make()", "weights = []"])

    assert words(main=text) == (["sends q.put(state)"] if is_told else [])


SEEN = """\
class Seen:
    def __init__(self, places):
        self.places = places
        self.items = []

    def add(self, item, position):
        {adds}

    def look(self, item):
        return {looks}


def main():
    seen = Seen(100)
    for item in source():
        seen.add(item, 0)
        seen.look(item)


if __name__ == "__main__":
    main()
"""
ADDS = "self.items.append(item)"


@pytest.mark.parametrize(
    ("adds", "looks"),
    [
        (ADDS, "random.sample(self.items, 32)"),
        (ADDS, "next((each for each in self.items if each == item), None)"),
        (ADDS, "any(each == item for each in self.items)"),
        (ADDS, "[a + b for a, b in zip(item, self.items)]"),
        (ADDS, "list(islice((each for each in self.items), 3))"),
        (
            "try:\n            self.items[position] = item\n"
            "        except IndexError:\n            self.items.append(item)",
            "sum(self.items)",
        ),
        (
            "if position == len(self.items):\n            self.items.append(None)\n"
            "        self.items[position] = item",
            "sum(self.items)",
        ),
        ("if item not in self.items:\n            self.items.append(item)", "sum(self.items)"),
    ],
)
def test_no_walk_over_all_of_what_only_grows(adds: str, looks: str) -> None:
    assert words(main=SEEN.format(adds=adds, looks=looks)) == []


@pytest.mark.parametrize("looks", ["sum(self.items)", "max(each.loss for each in self.items)"])
def test_a_walk_over_all_of_what_only_grows(looks: str) -> None:
    assert words(main=SEEN.format(adds=ADDS, looks=looks)) == ["walks self.items"]


@pytest.mark.parametrize(
    ("line", "reads"),
    [
        ("download(URL, PATH)", "torch.load(PATH)"),
        ("subprocess.run(['make', PATH])", "np.load(PATH)"),
        ("torch.onnx.export(model, None, PATH)", "onnxruntime.InferenceSession(PATH)"),
        ("model.save_pretrained(PATH)", "AutoModel.from_pretrained(PATH)"),
    ],
)
def test_a_file_that_a_program_or_a_library_writes_in_the_rounds(line: str, reads: str) -> None:
    top = "PATH = '/data/model.bin'\nURL = 'http://host/model.bin'\nmodel = make()"

    assert words(main=in_rounds(line, f"x = {reads}", top=top)) == []
    assert len(words(main=in_rounds("pass", f"x = {reads}", top=top))) == 1
