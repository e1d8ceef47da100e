"""Frames in streams that arrive in pieces, with other bytes between them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpwatch.nodes.wire.messages import (
    MAGIC,
    PROTOCOL,
    FrameReader,
    FrameTooLong,
    ReceivedFrame,
    encode,
)

LIMIT = 1000
bodies = st.lists(st.binary(max_size=80), max_size=6)
noise = st.one_of(st.binary(max_size=60), st.text(max_size=30).map(str.encode)).filter(
    lambda data: MAGIC not in data and not data.endswith((MAGIC[:1], MAGIC[:2], MAGIC[:3]))
)


def fed(reader: FrameReader, stream: bytes, cuts: list[int]) -> list[ReceivedFrame]:
    places = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    found: list[ReceivedFrame] = []
    for start, end in itertools.pairwise(places):
        found += reader.feed(stream[start:end])
    return found


@pytest.mark.slow
@given(bodies, st.lists(noise, min_size=7, max_size=7), st.lists(st.integers(0, 5000), max_size=8))
def test_frames_arrive_whole_between_any_noise_however_the_stream_is_cut(
    sent: list[bytes], between: list[bytes], cuts: list[int]
) -> None:
    stream = between[0]
    for body, after in zip(sent, between[1:], strict=False):
        stream += encode(body, LIMIT) + after
    reader = FrameReader(LIMIT)

    found = fed(reader, stream, cuts)

    assert [frame.body for frame in found] == sent


@given(st.binary(max_size=400), st.lists(st.integers(0, 500), max_size=4))
def test_any_bytes_are_skipped_without_an_error_and_in_bounded_memory(
    stream: bytes, cuts: list[int]
) -> None:
    reader = FrameReader(LIMIT)

    found = fed(reader, stream, cuts)

    assert found == []
    assert len(reader.text.encode()) <= 3 * 2048


@given(st.binary(min_size=1, max_size=60), st.integers(0, 10_000), st.integers(1, 255))
def test_a_damaged_frame_is_skipped_and_the_next_one_arrives(
    body: bytes, place: int, flip: int
) -> None:
    damaged = bytearray(encode(body, LIMIT))
    damaged[place % len(damaged)] ^= flip
    reader = FrameReader(LIMIT)

    # A damaged length may announce more than this frame: what is missing has to arrive first.
    found = reader.feed(bytes(damaged) + encode(b"next", LIMIT) + b"." * (LIMIT + 20))

    assert [frame.body for frame in found] == [b"next"]


def test_a_frame_that_is_too_long_is_refused_by_both_sides() -> None:
    with pytest.raises(FrameTooLong):
        encode(b"x" * (LIMIT + 1), LIMIT)
    reader = FrameReader(LIMIT)

    found = reader.feed(encode(b"x" * (LIMIT + 1), 2 * LIMIT) + encode(b"after", LIMIT))

    assert [frame.body for frame in found] == [b"after"]


def test_a_frame_of_another_protocol_is_received_with_its_number() -> None:
    reader = FrameReader(LIMIT)

    found = reader.feed(encode(b"new", LIMIT, protocol=PROTOCOL + 1) + encode(b"ours", LIMIT))

    assert found == [ReceivedFrame(PROTOCOL + 1, b"new"), ReceivedFrame(PROTOCOL, b"ours")]


def test_output_of_a_login_shell_is_kept_as_text() -> None:
    reader = FrameReader(LIMIT)

    found = reader.feed(b"Welcome to node7!\nbash: mpwatch: command not found\n")

    assert found == []
    assert reader.text == "Welcome to node7!\nbash: mpwatch: command not found"
