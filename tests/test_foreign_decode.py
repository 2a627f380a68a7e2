"""Bodies of foreign senders: unpacked within bounds, and read the same by their fixed forms as by a parse."""

import gzip
import json
import struct
import tracemalloc
import zlib
from typing import Any

import cramjam
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from foreign_index import STALE_NAN, PlainIndex, SecondRequest, first_request, series_message, told
from secondsight.errors import Rejected
from secondsight.gateway.foreign import bodies, otlp
from secondsight.gateway.foreign.native_histogram import on_grid
from secondsight.gateway.foreign.points import Points
from secondsight.gateway.foreign.remote_write import decode_first, decode_second
from secondsight.mapping.grid import GRID_BOUNDS

LIMIT = 1 << 20
ALL = {
    "": bodies.plain,
    "deflate": bodies.inflate,
    "gzip": bodies.gunzip,
    "zstd": bodies.unzstd,
    "snappy": bodies.unsnappy,
}
T0 = 1_764_470_000_000


def refused(body: bytes, encoding: str) -> str:
    with pytest.raises(Rejected) as caught:
        bodies.unpack(body, encoding, ALL, LIMIT)
    return caught.value.code


class TestUnpacking:
    @settings(max_examples=50, deadline=None)
    @given(st.binary(max_size=5000), st.integers(1, 3))
    def test_what_was_packed_comes_out(self, body: bytes, members: int) -> None:
        packed = {
            "": body * members,
            "deflate": zlib.compress(body * members),
            "gzip": gzip.compress(body) * members,
            "zstd": zstandard.compress(body) * members,
            "snappy": bytes(cramjam.snappy.compress_raw(body * members)),
        }
        for encoding, sent in packed.items():
            assert bodies.unpack(sent, encoding, ALL, LIMIT) == body * members

    def test_a_streamed_zstd_frame_does_not_say_its_size(self) -> None:
        packer = zstandard.ZstdCompressor().compressobj()
        sent = packer.compress(b"abc" * 1000) + packer.flush()
        assert zstandard.frame_content_size(sent) == -1
        assert bodies.unpack(sent, "zstd", ALL, LIMIT) == b"abc" * 1000
        assert refused(sent[:-5], "zstd") == "bad_body"

    @pytest.mark.parametrize("encoding", ["deflate", "gzip", "zstd", "snappy"])
    def test_damage_is_refused(self, encoding: str) -> None:
        whole = {
            "deflate": zlib.compress(b"x" * 999),
            "gzip": gzip.compress(b"x" * 999),
            "zstd": zstandard.compress(b"x" * 999),
            "snappy": bytes(cramjam.snappy.compress_raw(b"x" * 999)),
        }
        for sent in (b"", whole[encoding][:-3], b"{}", b"\xff" * 40, whole[encoding] + b"tail"):
            assert refused(sent, encoding) in ("bad_body", "body_too_large")

    @pytest.mark.parametrize("encoding", ["deflate", "gzip", "zstd", "snappy"])
    def test_a_bomb_takes_no_more_memory_than_the_bound(self, encoding: str) -> None:
        size = 64 << 20
        sent = {
            "deflate": zlib.compress(bytes(size)),
            "gzip": zlib.compress(bytes(size), wbits=31),
            "zstd": zstandard.compress(bytes(size)),
            "snappy": bytes(cramjam.snappy.compress_raw(bytes(size))),
        }[encoding]
        tracemalloc.start()
        assert refused(sent, encoding) == "body_too_large"
        assert tracemalloc.get_traced_memory()[1] < 4 * LIMIT
        tracemalloc.stop()

    @pytest.mark.parametrize("declared", [2**32 - 1, LIMIT + 1, LIMIT, 2**35])
    def test_a_snappy_length_is_checked_before_it_is_believed(self, declared: int) -> None:
        length = bytes((declared >> shift & 0x7F) | 0x80 for shift in range(0, 28, 7)) + bytes([declared >> 28 & 0xFF])
        assert refused(length + b"\x00" * 8, "snappy") in ("body_too_large", "bad_body")

    def test_encodings_not_taken_are_answered_with_those_that_are(self) -> None:
        with pytest.raises(Rejected, match="content_encoding") as caught:
            bodies.unpack(b"", "br", {"snappy": bodies.unsnappy, "zstd": bodies.unzstd}, LIMIT)
        assert caught.value.hint == "use one of: snappy, zstd"
        with pytest.raises(Rejected, match="content_encoding"):
            bodies.unpack(zstandard.compress(b"x" * 50), "snappy", ALL, LIMIT)


NAMES = st.sampled_from(["__name__", "a", "zone", "", "x" * 20])
TEXTS = st.one_of(st.text(max_size=12), st.just("\x12\x10\t12345678\x10123456"), st.just("\x12\x07\x10123456"))
VALUES = st.one_of(st.floats(), st.just(0.0), st.just(-0.0), st.just(STALE_NAN), st.integers(0, 2**40).map(float))
TIMES = st.one_of(st.integers(T0, T0 + 10**9), st.sampled_from([0, 1, -1, 2**35, 2**42 - 1, 2**42, T0 * 1000]))
SERIES = st.tuples(
    st.lists(st.tuples(NAMES, TEXTS), max_size=4),
    st.lists(st.tuples(VALUES, TIMES), min_size=1, max_size=4),
)


EXTRAS = st.sampled_from([{}, {}, {"help": "x"}, {"created_timestamp": T0 - 9}, {"exemplars": 1}])


def starts(points: Points) -> list[int]:
    return [0] * points.series.size if points.starts_ms is None else points.starts_ms.tolist()


class TestFixedForms:
    @settings(max_examples=200, deadline=None)
    @given(st.lists(st.lists(SERIES, max_size=6), min_size=1, max_size=4))
    def test_a_known_series_is_read_as_a_parse_reads_it(self, requests: list[Any]) -> None:
        remembering = PlainIndex()
        for series in requests * 2:
            body = first_request(*(series_message(*one) for one in series))
            fresh = PlainIndex()
            wanted = told(decode_first(body, fresh, lambda *_: None), fresh)
            assert told(decode_first(body, remembering, lambda *_: None), remembering) == wanted
            assert len(wanted) == sum(len(samples) for _, samples in series)

    @settings(max_examples=200, deadline=None)
    @given(st.lists(st.lists(st.tuples(SERIES, EXTRAS), max_size=6), min_size=1, max_size=4))
    def test_a_known_series_of_the_second_version_is_read_as_a_parse_reads_it(self, requests: list[Any]) -> None:
        remembering = PlainIndex()
        for series in requests * 2:
            request = SecondRequest()
            made = [request.series(labels, samples, **more) for (labels, samples), more in series]
            body = request.bytes(*made)
            fresh = PlainIndex()
            wanted = decode_second(body, fresh)
            got = decode_second(body, remembering)
            assert told(got, remembering) == told(wanted, fresh)
            assert starts(got) == starts(wanted)
            assert (got.exemplars, len(got.histograms)) == (wanted.exemplars, len(wanted.histograms))

    def test_labels_that_look_like_a_sample_stay_labels(self) -> None:
        index = PlainIndex()
        labels = [("__name__", "a"), ("b", "\x12\x10\t12345678\x10123456")]
        for value in (1.0, 0.0, 2.0):
            points = decode_first(first_request(series_message(labels, [(value, T0)])), index, lambda *_: None)
            assert told(points, index) == [
                ("a", (("b", labels[1][1]),), f"{struct.unpack('<Q', struct.pack('<d', value))[0]:x}", T0)
            ]
        assert len(index.series) == 1

    def test_one_broken_series_costs_itself(self) -> None:
        from secondsight.gateway.foreign.messages import remote_write

        message: Any = remote_write("WriteRequest")()
        good = series_message([("__name__", "a")], [(1.0, T0)]).SerializeToString()
        message.timeseries.extend([good, b"\x0a\xff", good])
        points = decode_first(message.SerializeToString(), PlainIndex(), lambda *_: None)
        assert points.series.size == 2
        assert dict(points.refused) == {("bad_series", ""): 1}

    @pytest.mark.parametrize("body", [b"\xff", b"\x0a\x05ab", b"not protobuf at all"])
    def test_what_is_no_message_is_refused(self, body: bytes) -> None:
        with pytest.raises(Rejected, match="bad_body"):
            decode_first(body, PlainIndex(), lambda *_: None)
        with pytest.raises(Rejected, match="bad_body"):
            decode_second(body, PlainIndex())

    def test_a_request_of_the_other_version_is_refused_and_not_taken_for_an_empty_one(self) -> None:
        request = SecondRequest()
        second = request.bytes(request.series([("__name__", "a")], [(1.0, T0)]))
        first = first_request(series_message([("__name__", "a")], [(1.0, T0)]))
        with pytest.raises(Rejected, match=r"2\.0"):
            decode_first(second, PlainIndex(), lambda *_: None)
        with pytest.raises(Rejected, match=r"1\.0"):
            decode_second(first, PlainIndex())


class TestSecondVersion:
    def test_symbols_starts_help_and_exemplars(self) -> None:
        index, request = PlainIndex(), SecondRequest()
        body = request.bytes(
            request.series([("__name__", "a"), ("x", "1")], [(5.0, T0, T0 - 1000)], help="in us", exemplars=2),
            request.series([("__name__", "b")], [(6.0, T0)], created_timestamp=T0 - 5),
        )
        points = decode_second(body, index)
        assert [(one.name, one.labels, one.help) for one in index.series] == [
            ("a", (("x", "1"),), "in us"),
            ("b", (), ""),
        ]
        assert points.starts_ms is not None
        assert points.starts_ms.tolist() == [T0 - 1000, T0 - 5]
        assert points.exemplars == 2

    def test_a_symbol_that_is_not_there_costs_one_series(self) -> None:
        index, request = PlainIndex(), SecondRequest()
        good, bad = (request.series([("__name__", "a")], [(1.0, T0)]) for _ in range(2))
        bad.labels_refs.extend([99, 100])
        points = decode_second(request.bytes(good, bad), index)
        assert points.series.size == 1
        assert dict(points.refused) == {("symbol_missing", ""): 1}

    @pytest.mark.parametrize(
        ("change", "fault"),
        [
            ({}, ""),
            ({"count_int": 9}, "histogram_count"),
            ({"sum": float("inf")}, "histogram_sum"),
            ({"schema": 99}, "histogram_schema"),
            ({"positive_spans": [{"offset": 0, "length": 3}]}, "histogram_spans"),
            ({"positive_spans": [{"offset": 0, "length": 2**31}]}, "histogram_spans"),
            ({"positive_deltas": [-1, 2]}, "histogram_value"),
            ({"sum": STALE_NAN}, ""),
        ],
    )
    def test_native_histograms(self, change: dict[str, Any], fault: str) -> None:
        histogram = {
            "count_int": 4,
            "sum": 3.5,
            "schema": 0,
            "zero_count_int": 1,
            "positive_spans": [{"offset": 0, "length": 2}],
            "positive_deltas": [1, 1],
            "timestamp": T0,
        } | change
        request = SecondRequest()
        body = request.bytes(request.series([("__name__", "h")], histograms=[histogram]))
        (sample,) = decode_second(body, PlainIndex()).histograms
        assert sample.fault == fault
        assert sum(sample.buckets) == (4 if not change else 0)

    def test_buckets_of_the_sender_itself(self) -> None:
        histogram = {
            "count_int": 6,
            "sum": 3.5,
            "schema": -53,
            "positive_spans": [{"offset": 0, "length": 3}],
            "positive_deltas": [1, 1, 1],
            "custom_values": [0.1, 1.0],
            "timestamp": T0,
        }
        request = SecondRequest()
        (sample,) = decode_second(
            request.bytes(request.series([("__name__", "h")], histograms=[histogram])), PlainIndex()
        ).histograms
        assert (sample.bounds, sample.buckets, sample.fault) == ((0.1, 1.0), (1, 2, 3), "")


class TestGrid:
    @settings(max_examples=100)
    @given(st.integers(2, 8), st.lists(st.tuples(st.integers(-3000, 3000), st.integers(0, 100)), max_size=20))
    def test_finer_buckets_merge_exactly(self, scale: int, buckets: list[tuple[int, int]]) -> None:
        counts = on_grid(scale, buckets, 1, (0.0, 2))
        assert sum(counts) == 3 + sum(count for _, count in buckets)
        for place, bound in enumerate(GRID_BOUNDS):
            below = 3 + sum(count for step, count in buckets if 2.0 ** (step / 2**scale) <= bound * (1 + 1e-12))
            assert sum(counts[: place + 1]) == below

    def test_counts_of_a_coarser_scale_are_exact_at_its_own_bounds(self) -> None:
        counts = on_grid(0, [(1, 5), (2, 7)], 0, (0.0, 0))
        assert sum(counts[: GRID_BOUNDS.index(2.0) + 1]) == 5
        assert sum(counts[: GRID_BOUNDS.index(4.0) + 1]) == 12


class TestOtlp:
    @pytest.mark.parametrize(
        "body", [b"", b"[]", b"{", b"null", b'{"resourceMetrics":{}}', b'{"resourceMetrics":[{"scopeMetrics":7}]}']
    )
    def test_what_is_no_request_in_json_is_refused(self, body: bytes) -> None:
        with pytest.raises(Rejected, match="bad_body"):
            otlp.read_json(body)

    def test_json_with_fields_that_nobody_knows_is_read(self) -> None:
        point = {"asInt": "9007199254740993", "timeUnixNano": f"{T0}000000", "exemplars": [{"traceId": "abc"}]}
        metric = {"name": "m", "new": {"a": 1}, "gauge": {"dataPoints": [point]}}
        body = json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}).encode()
        points = otlp.decode(otlp.read_json(body), PlainIndex())
        assert points.exact == {0: 9007199254740993}
        assert points.exemplars == 1
