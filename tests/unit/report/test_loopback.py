"""Servers on loopback addresses refuse what pages of other sites ask for."""

from __future__ import annotations

import pytest

from mpwatch.report.loopback import why_refused


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("127.0.0.1:8000", None),
        ("localhost:8000", None),
        ("[::1]:8000", None),
        ("localhost:9000", None),  # a port forwarded by ssh
        (None, None),  # HTTP/1.0 without Host: no browser
        ("127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("127.0.0.1:8000", "http://localhost:8000"),
    ],
)
def test_requests_of_this_machine_are_answered(host: str | None, origin: str | None) -> None:
    assert why_refused(host, origin, 8000) is None


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("evil.example:8000", None),
        ("evil.example:8000", "http://evil.example:8000"),
        ("127.0.0.1.evil.example", None),
        ("localhost.evil.example:8000", None),
        ("127.0.0.1@evil.example:8000", None),
        ("", None),
        ("[::1", None),
        ("192.168.0.2:8000", None),
        ("127.0.0.1:8000", "http://evil.example"),
        ("127.0.0.1:8000", "https://127.0.0.1:8000"),
        ("127.0.0.1:8000", "http://127.0.0.1:3000"),
        ("127.0.0.1:8000", "http://localhost"),
        ("127.0.0.1:8000", "null"),
        ("127.0.0.1:8000", ""),
    ],
)
def test_requests_of_other_sites_are_refused(host: str, origin: str | None) -> None:
    assert (why_refused(host, origin, 8000) or "").startswith("Refused")
