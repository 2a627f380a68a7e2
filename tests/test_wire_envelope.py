"""Envelopes give back what was put in and refuse the rest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secondsight.errors import Rejected
from secondsight.wire.envelope import Envelope, RecordType, decode_envelope, encode_envelope, partition_key
from wire_strategies import texts

envelopes = st.builds(
    Envelope,
    type=st.sampled_from(RecordType),
    tenant_id=texts,
    region=texts,
    cluster_id=texts,
    ingest_time_ms=st.integers(0, 253_402_300_799_999),
    body=st.binary(max_size=50),
)


@given(envelopes)
def test_decode_gives_back_what_was_encoded(envelope):
    assert decode_envelope(encode_envelope(envelope)) == envelope


@given(envelopes, st.data())
def test_a_cut_head_is_refused(envelope, data):
    value = encode_envelope(envelope)
    head = len(value) - len(envelope.body)
    with pytest.raises(Rejected) as caught:
        decode_envelope(value[: data.draw(st.integers(0, head - 1))])
    assert caught.value.code == "bad_envelope"


@pytest.mark.parametrize(
    "changes", [{"tenant_id": "a" * 513}, {"region": "\0"}, {"cluster_id": "\ud800"}, {"ingest_time_ms": -1}]
)
def test_fields_out_of_bounds_are_refused(changes):
    fields = {
        "type": RecordType.FRAME,
        "tenant_id": "t",
        "region": "r",
        "cluster_id": "c",
        "ingest_time_ms": 1,
        "body": b"",
    }
    with pytest.raises(Rejected) as caught:
        encode_envelope(Envelope(**(fields | changes)))
    assert caught.value.code == "bad_envelope"


def test_a_host_always_has_the_same_key():
    assert partition_key("t", "c", "h").hex() == "a4ede5d93b475b99"
    assert partition_key("t", "c", "h2") != partition_key("t", "c", "h")
