"""Metrics and the server for them."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from msgspec.structs import replace

from mpwatch.model.host import CgroupSample
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Loader
from mpwatch.report.prometheus import CannotServe, MetricsServer, exposition, parse_address
from tests.builders.report_job import finding, job

LINE = re.compile(r'[a-z_]+(\{([a-z]+="([^"\\]|\\.)*",?)*\})? -?[0-9.e+]+(inf|nan)?')


def test_every_line_has_the_text_format() -> None:
    lines = exposition(job()).splitlines()

    assert all(line.startswith("# ") or LINE.fullmatch(line) for line in lines)


def test_each_metric_is_explained_before_its_series() -> None:
    explained: set[str] = set()
    for line in exposition(job()).splitlines():
        if line.startswith("# TYPE "):
            explained.add(line.split()[2])
        elif not line.startswith("#"):
            assert re.split(r"[{ ]", line)[0] in explained


def test_limits_and_use_are_exported() -> None:
    lines = exposition(job()).splitlines()

    assert 'mpwatch_process_open_fds{pid="41823",role="main",process="main"} 642' in lines
    assert 'mpwatch_process_max_fds{pid="41823",role="main",process="main"} 1024' in lines
    assert "mpwatch_shm_free_bytes 3145728" in lines
    assert 'mpwatch_findings{severity="critical"} 1' in lines
    assert 'mpwatch_finding_seconds_left{rule="fd-exhaustion-receiver",pid="41823"} 38.0' in lines


def test_values_that_could_not_be_read_have_no_series() -> None:
    text = exposition(job())

    assert 'mpwatch_process_open_fds{pid="41826"' not in text
    assert "mpwatch_cgroup_oom_kills" not in text


def test_a_process_that_ended_has_no_series() -> None:
    text = exposition(job())

    assert 'pid="41827"' not in text
    assert "mpwatch_processes_ended 1" in text


def test_the_series_of_a_loader_does_not_change_when_another_loader_ends() -> None:
    of_main, of_other = (
        Loader(ProcessId(pid, 1), key, 2, wait_share=share)
        for pid, key, share in ((41823, 3, 0.5), (20, 7, 0.25))
    )
    expected = 'mpwatch_loader_wait_ratio{pid="20",loader="7"} 0.25'

    both = exposition(replace(job(), loaders=(of_main, of_other))).splitlines()
    one = exposition(replace(job(), loaders=(of_other,))).splitlines()

    assert expected in both
    assert expected in one


def test_what_only_rises_is_a_counter() -> None:
    killed = replace(job().host, cgroup=CgroupSample(2, "/job", oom_kills=2))

    lines = exposition(replace(job(), host=killed)).splitlines()

    kinds = dict(line.split()[2:] for line in lines if line.startswith("# TYPE "))
    assert {name for name, kind in kinds.items() if kind == "counter"} == {
        "mpwatch_cgroup_oom_kills",
        "mpwatch_events_lost",
        "mpwatch_processes_ended",
    }


def test_processes_that_are_no_longer_shown_still_count_as_ended() -> None:
    lines = exposition(replace(job(), ended_before=300, lost_before=40)).splitlines()

    assert "mpwatch_processes_ended 301" in lines
    lost = sum(process.hook.lost for process in job().processes)
    assert f"mpwatch_events_lost {lost + 40}" in lines


def test_a_hostile_name_stays_within_its_quotes() -> None:
    snapshot = job()
    evil = replace(snapshot.processes[0], label='x"} 1\nmpwatch_up 0 \\')

    text = exposition(replace(snapshot, processes=(evil,)))

    assert 'process="x\\"} 1\\nmpwatch_up 0 \\\\"' in text
    assert not [line for line in text.splitlines() if line.startswith("mpwatch_up")]


def test_two_findings_of_one_rule_give_the_sooner_forecast() -> None:
    later = replace(finding(), eta_s=99.0, subject="other")

    text = exposition(replace(job(), findings=(later, finding())))

    assert text.count("mpwatch_finding_seconds_left{") == 1
    assert text.rstrip().endswith(" 38.0")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9400", ("127.0.0.1", 9400)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:80", ("::1", 80)),
        (":9400", ("127.0.0.1", 9400)),
    ],
)
def test_loopback_addresses_are_accepted(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text",
    ["0.0.0.0:9400", "10.0.0.1:9400", "example.org:80", "9400", "localhost:", "[::]:1", "::1"],
)
def test_other_addresses_are_refused_with_one_sentence(text: str) -> None:
    with pytest.raises(CannotServe, match=r"\.$"):
        parse_address(text)


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    made = MetricsServer("127.0.0.1", 0)
    made.start()
    yield made
    made.stop()


def test_the_newest_snapshot_is_served(server: MetricsServer) -> None:
    server.show(job())
    server.show(replace(job(), processes=()))

    with urlopen(server.url, timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert "mpwatch_processes 0" in answer.read().decode()


@pytest.mark.parametrize(("path", "status"), [("/metrics", 503), ("/etc/passwd", 404)])
def test_errors_have_a_status_and_a_text(server: MetricsServer, path: str, status: int) -> None:
    url = server.url.replace("/metrics", path)

    with pytest.raises(HTTPError) as caught:
        urlopen(url, timeout=10)
    assert caught.value.code == status
    caught.value.close()


@pytest.mark.parametrize(
    "headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}]
)
def test_a_page_of_another_site_gets_no_metrics(
    server: MetricsServer, headers: dict[str, str]
) -> None:
    server.show_text("mpwatch_secret 1\n")
    with pytest.raises(HTTPError) as refused:
        urlopen(Request(server.url, headers=headers), timeout=60)
    with refused.value as answer:
        assert answer.code == 403
        assert "secret" not in answer.read().decode()


def test_an_address_in_use_is_refused(server: MetricsServer) -> None:
    port = int(server.url.split(":")[2].split("/")[0])

    with pytest.raises(CannotServe, match="Address already in use"):
        MetricsServer("127.0.0.1", port)


def test_a_client_that_sends_garbage_does_not_affect_others(server: MetricsServer) -> None:
    port = int(server.url.split(":")[2].split("/")[0])
    server.show(job())
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(b"\x00\xff" * 100 + b"\r\n\r\n")
        client.recv(100)

    with urlopen(server.url, timeout=10) as answer:
        assert answer.status == 200


def test_a_server_that_never_started_can_be_stopped() -> None:
    MetricsServer("127.0.0.1", 0).stop()
