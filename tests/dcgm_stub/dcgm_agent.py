# ruff: noqa: N802 # the names are those of DCGM
"""Answers as a host engine does, from a scenario: GPUs, instances, values, statuses, faults and hangs."""

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace as Of

import dcgm_fields
import dcgm_structs

PLACE = Path(os.environ["DCGM_STUB"])


def scenario():
    return json.loads((PLACE / "scenario.json").read_text())


def note(*words):
    with (PLACE / "calls").open("a") as out:
        out.write(json.dumps(words) + "\n")


def dcgmInit():
    print("words of the library on standard output")
    return 0


def dcgmConnect(address):
    note("connect", address)
    if scenario().get("refuse"):
        raise dcgm_structs.DCGMError(scenario()["refuse"])
    return "handle"


def dcgmConnect_v2(address, params):
    note("connect_v2", address, params.addressIsUnixSocket)
    return "handle"


def dcgmGroupCreate(handle, kind, name):
    return name


def dcgmGroupAddEntity(handle, group, entity_group, entity):
    note("add", entity_group, entity)


def dcgmFieldGroupCreate(handle, fields, name):
    note("fields", name, fields)
    return name


def dcgmWatchFields(handle, group, field_group, update_us, keep_seconds, keep_samples):
    note("watch", field_group, update_us)
    if field_group == "secondsight_profiling" and scenario().get("refuse_profiling"):
        raise dcgm_structs.DCGMError("profiling is in use")


def dcgmUnwatchFields(handle, group, field_group):
    note("unwatch", field_group)


def dcgmProfGetSupportedMetricGroups(handle, gpu):
    groups = [Of(majorId=m, minorId=n, numFieldIds=len(f), fieldIds=f) for m, n, f in scenario().get("passes", [])]
    return Of(numMetricGroups=len(groups), metricGroups=groups)


def dcgmGetEntityGroupEntities(handle, entity_group, flags):
    return list(range(len(scenario()["gpus"])))


def dcgmGetDeviceAttributes(handle, gpu):
    uuid = scenario()["gpus"][gpu]
    names = {"pciBusId": f"00000000:1{gpu}:00.0", "deviceName": "Some Card", "driverVersion": "590.48.01"}
    return Of(identifiers=Of(uuid=uuid, vbios="1.2", serial="<<<NOT_SUPPORTED>>>", **names))


def dcgmGetGpuInstanceHierarchy(handle):
    told = []
    for gpu, instance, entity in scenario().get("instances", []):
        one = Of(entityGroupId=dcgm_fields.DCGM_FE_GPU_I, entityId=entity)
        parent = Of(entityGroupId=dcgm_fields.DCGM_FE_GPU, entityId=gpu)
        told.append(Of(entity=one, parent=parent, info=Of(nvmlInstanceId=instance)))
    return Of(count=len(told), entityList=told)


def dcgmEntitiesGetLatestValues(handle, entities, fields, flags):
    now = scenario()
    if now.get("hang"):
        time.sleep(now["hang"])
    if now.get("fail"):
        raise dcgm_structs.DCGMError(now["fail"])
    return [_value(now, pair, field) for pair in entities for field in fields]


def _value(now, pair, field):
    key = f"{pair.entityGroupId}/{pair.entityId}/{field}"
    told = now.get("values", {}).get(key, now.get("values", {}).get(f"*/{field}", "blank"))
    status = 0
    if isinstance(told, dict):
        status, told = getattr(dcgm_structs, told["status"]), 0
    kind = "d" if isinstance(told, float) else "i"
    if told == "blank":
        kind, told = (
            ("d", 2.0**47) if 1000 < field < 1100 or field in (155, 157, 164, 254) else ("i", 0x7FFFFFFFFFFFFFF0)
        )
    at = now.get("at_us") or time.time_ns() // 1000
    value = Of(i64=told, dbl=told, str=b"")
    names = {"entityGroupId": pair.entityGroupId, "entityId": pair.entityId, "fieldId": field}
    return Of(fieldType=ord(kind), status=status, ts=at, value=value, **names)
