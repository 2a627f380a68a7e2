"""Describe the protobuf messages that foreign senders use: what is read of them, field by field.

Messages that come in thousands are kept as bytes (`packed` here), so that a reader can look at them without parsing
them. Texts are bytes too: one that is no UTF-8 costs its own series and not the whole request. Fields that nothing is
made of are left out.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

_Field = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "double": _Field.TYPE_DOUBLE,
    "int64": _Field.TYPE_INT64,
    "uint64": _Field.TYPE_UINT64,
    "int32": _Field.TYPE_INT32,
    "uint32": _Field.TYPE_UINT32,
    "sint32": _Field.TYPE_SINT32,
    "sint64": _Field.TYPE_SINT64,
    "fixed64": _Field.TYPE_FIXED64,
    "sfixed64": _Field.TYPE_SFIXED64,
    "bool": _Field.TYPE_BOOL,
    "bytes": _Field.TYPE_BYTES,
    "string": _Field.TYPE_STRING,
}

_ENUMS: Mapping[str, tuple[str, ...]] = {
    "Temporality": (
        "AGGREGATION_TEMPORALITY_UNSPECIFIED",
        "AGGREGATION_TEMPORALITY_DELTA",
        "AGGREGATION_TEMPORALITY_CUMULATIVE",
    )
}
"""Names of numbers from 0 on: some senders write them into their JSON."""

_Layout = Mapping[str, Mapping[str, tuple[int, str]]]

_HISTOGRAM = {
    "count_int": (1, "uint64?"),
    "count_float": (2, "double?"),
    "sum": (3, "double"),
    "schema": (4, "sint32"),
    "zero_threshold": (5, "double"),
    "zero_count_int": (6, "uint64?"),
    "zero_count_float": (7, "double?"),
    "negative_spans": (8, "Span*"),
    "negative_deltas": (9, "sint64*"),
    "negative_counts": (10, "double*"),
    "positive_spans": (11, "Span*"),
    "positive_deltas": (12, "sint64*"),
    "positive_counts": (13, "double*"),
    "reset_hint": (14, "int32"),
    "timestamp": (15, "int64"),
    "custom_values": (16, "double*"),
    "start_timestamp": (17, "int64"),
}

REMOTE_WRITE: _Layout = {
    "WriteRequest": {"timeseries": (1, "bytes*"), "metadata": (3, "Metadata*"), "later_series": (5, "bytes*")},
    "TimeSeries": {
        "labels": (1, "Label*"),
        "samples": (2, "Sample*"),
        "exemplars": (3, "Exemplar*"),
        "histograms": (4, "Histogram*"),
    },
    "Metadata": {"name": (2, "bytes"), "help": (4, "bytes"), "unit": (5, "bytes")},
    "Request": {"earlier_series": (1, "bytes*"), "symbols": (4, "bytes*"), "timeseries": (5, "bytes*")},
    "Series": {
        "labels_refs": (1, "uint32*"),
        "samples": (2, "Sample*"),
        "histograms": (3, "Histogram*"),
        "exemplars": (4, "Exemplar*"),
        "metadata": (5, "SeriesMetadata"),
        "created_timestamp": (6, "int64"),
    },
    "SeriesMetadata": {"type": (1, "int32"), "help_ref": (3, "uint32"), "unit_ref": (4, "uint32")},
    "Label": {"name": (1, "bytes"), "value": (2, "bytes")},
    "Sample": {"value": (1, "double"), "timestamp": (2, "int64"), "start_timestamp": (3, "int64")},
    "Exemplar": {},
    "Span": {"offset": (1, "sint32"), "length": (2, "uint32")},
    "Histogram": _HISTOGRAM,
}
"""Remote write: `WriteRequest` is 1.0, `Request` is 2.0."""

# Senders of OTLP before 0.15 call the metrics of a scope those of an instrumentation library; they are laid out alike.
OTLP: _Layout = {
    "ExportRequest": {"resource_metrics": (1, "ResourceMetrics*")},
    "ResourceMetrics": {
        "resource": (1, "Resource"),
        "scope_metrics": (2, "ScopeMetrics*"),
        "instrumentation_library_metrics": (1000, "ScopeMetrics*"),
    },
    "Resource": {"attributes": (1, "KeyValue*")},
    "ScopeMetrics": {"metrics": (2, "Metric*")},
    "Metric": {
        "name": (1, "string"),
        "description": (2, "string"),
        "unit": (3, "string"),
        "gauge": (5, "Gauge?"),
        "sum": (7, "Sum?"),
        "histogram": (9, "Histogram?"),
        "exponential_histogram": (10, "ExponentialHistogram?"),
        "summary": (11, "Summary?"),
    },
    "Gauge": {"data_points": (1, "NumberPoint*")},
    "Sum": {
        "data_points": (1, "NumberPoint*"),
        "aggregation_temporality": (2, "Temporality"),
        "is_monotonic": (3, "bool"),
    },
    "Histogram": {"data_points": (1, "HistogramPoint*"), "aggregation_temporality": (2, "Temporality")},
    "ExponentialHistogram": {"data_points": (1, "ExponentialPoint*"), "aggregation_temporality": (2, "Temporality")},
    "Summary": {"data_points": (1, "SummaryPoint*")},
    "NumberPoint": {
        "start_time_unix_nano": (2, "fixed64"),
        "time_unix_nano": (3, "fixed64"),
        "as_double": (4, "double?"),
        "exemplars": (5, "Exemplar*"),
        "as_int": (6, "sfixed64?"),
        "attributes": (7, "KeyValue*"),
        "flags": (8, "uint32"),
    },
    "HistogramPoint": {
        "start_time_unix_nano": (2, "fixed64"),
        "time_unix_nano": (3, "fixed64"),
        "count": (4, "fixed64"),
        "sum": (5, "double?"),
        "bucket_counts": (6, "fixed64*"),
        "explicit_bounds": (7, "double*"),
        "exemplars": (8, "Exemplar*"),
        "attributes": (9, "KeyValue*"),
        "flags": (10, "uint32"),
    },
    "ExponentialPoint": {
        "attributes": (1, "KeyValue*"),
        "start_time_unix_nano": (2, "fixed64"),
        "time_unix_nano": (3, "fixed64"),
        "count": (4, "fixed64"),
        "sum": (5, "double?"),
        "scale": (6, "sint32"),
        "zero_count": (7, "fixed64"),
        "positive": (8, "Buckets"),
        "negative": (9, "Buckets"),
        "flags": (10, "uint32"),
        "exemplars": (11, "Exemplar*"),
        "zero_threshold": (14, "double"),
    },
    "Buckets": {"offset": (1, "sint32"), "bucket_counts": (2, "uint64*")},
    "SummaryPoint": {
        "start_time_unix_nano": (2, "fixed64"),
        "time_unix_nano": (3, "fixed64"),
        "count": (4, "fixed64"),
        "sum": (5, "double"),
        "attributes": (7, "KeyValue*"),
        "flags": (8, "uint32"),
    },
    "Exemplar": {},
    "KeyValue": {"key": (1, "string"), "value": (2, "AnyValue")},
    "AnyValue": {
        "string_value": (1, "string?"),
        "bool_value": (2, "bool?"),
        "int_value": (3, "int64?"),
        "double_value": (4, "double?"),
        "array_value": (5, "ArrayValue?"),
        "kvlist_value": (6, "KeyValueList?"),
        "bytes_value": (7, "bytes?"),
    },
    "ArrayValue": {"values": (1, "AnyValue*")},
    "KeyValueList": {"values": (1, "KeyValue*")},
    "ExportResponse": {"partial_success": (1, "PartialSuccess?")},
    "PartialSuccess": {"rejected_data_points": (1, "int64"), "error_message": (2, "string")},
    "Status": {"code": (1, "int32"), "message": (2, "string")},
}


@cache
def remote_write(name: str) -> type[Message]:
    """Return the class of a message of remote write."""
    return _classes("secondsight.remote_write", REMOTE_WRITE)[name]


@cache
def otlp(name: str) -> type[Message]:
    """Return the class of a message of OTLP."""
    return _classes("secondsight.otlp", OTLP)[name]


def _classes(package: str, layout: _Layout) -> dict[str, type[Message]]:
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, values in _ENUMS.items():
        enum = file.enum_type.add(name=name)
        for number, value in enumerate(values):
            enum.value.add(name=value, number=number)
    for name, fields in layout.items():
        _add_message(file.message_type.add(name=name), package, fields)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in layout}


def _add_message(message: Any, package: str, fields: Mapping[str, tuple[int, str]]) -> None:
    optional: Sequence[str] = [name for name, (_, kind) in fields.items() if kind.endswith("?")]
    for name, (number, kind) in fields.items():
        word = kind.rstrip("*?")
        label = _Field.LABEL_REPEATED if kind.endswith("*") else _Field.LABEL_OPTIONAL
        field = message.field.add(name=name, number=number, label=label, json_name=_json_name(name))
        if word in _TYPES:
            field.type = _TYPES[word]
        elif word in _ENUMS:
            field.type, field.type_name = _Field.TYPE_ENUM, f".{package}.{word}"
        else:
            field.type, field.type_name = _Field.TYPE_MESSAGE, f".{package}.{word}"
        if name in optional and word in _TYPES:
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{name}")


def _json_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
