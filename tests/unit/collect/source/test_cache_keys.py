"""Where the keys of a cache come from, one call above."""

from __future__ import annotations

import ast

import pytest

from mpwatch.collect.source.lines.cache_keys import key_origins
from mpwatch.collect.source.marks import marks
from mpwatch.collect.source.syntax import ParsedFile

METRICS = """\
class Family:
    def __init__(self):
        self._children = {}

    def labels(self, *values):
        child = self._children.get(values)
        if child is None:
            child = self._children[values] = self.kind()
        return child
"""
WEB = """\
import metrics

def handle(request):
    method, path = request.command, request.path
    status = answer()
    metrics.REQUESTS.labels(method, path, str(status)).inc()
"""


def origins(
    metrics: str = METRICS, web: str = WEB, folder: str = "/app"
) -> list[tuple[str, int, str]]:
    """The lines at which keys are taken, with what the mark says."""
    files = [
        (f"{folder}/{name}.py", ParsedFile(tuple(text.splitlines()), ast.parse(text)))
        for name, text in (("metrics", metrics), ("web", web))
    ]
    (cache,) = (each for each in marks(*files[0]) if each.kind == "cache")
    return [(each.file, each.statement.line, each.about) for each in key_origins(cache, files)]


def test_the_line_that_takes_the_key_out_of_a_request_is_found() -> None:
    assert origins() == [("/app/web.py", 4, "metrics.py:8, labels")]


def test_the_line_that_stores_is_told_whole_of_a_file_with_a_long_path() -> None:
    assert [about for _, _, about in origins(folder="/app" * 30)] == ["metrics.py:8, labels"]


def test_of_named_arguments_only_the_key_counts() -> None:
    metrics = METRICS.replace("*values", "kind, values")
    web = WEB.replace("method, path, str(status)", "kind, path").replace(
        "method, path = request.command, request.path",
        "kind = request.command\n    path = request.path",
    )

    assert [line for _, line, _ in origins(metrics, web)] == [5]


@pytest.mark.parametrize(
    ("metrics", "web"),
    [
        # The key is made in the function itself, of few values, or another function has its name.
        (METRICS.replace("*values", "kind"), WEB),
        (METRICS, WEB.replace("request.command, request.path", "'GET', '/v1'")),
        (METRICS, WEB.replace("labels(method, path, str(status))", "labels(*request)")),
        (METRICS, f"{WEB}\ndef labels(*values):\n    return values\n"),
        # A method of a dictionary, as far as the name tells.
        (METRICS.replace("labels", "get"), WEB.replace("labels", "get")),
    ],
)
def test_nothing_is_told_where_it_does_not_show(metrics: str, web: str) -> None:
    assert origins(metrics, web) == []
