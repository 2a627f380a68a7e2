"""Watch fields at a DCGM host engine and take their latest values, through the bindings that DCGM ships.

Runs in a process of its own: nothing here is imported by the agent. Fields that this version does not know are left
out; profiling fields are watched only as far as the hardware counts them in one pass, as a value that was multiplexed
may be a 0 that is none. Watches of profiling fields that stay blank are armed again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

PROFILING_FIRST, PROFILING_LAST = 1001, 1099
BLANK_TICKS = 30
"""After so many readings in which every profiling value is blank, their watch is armed again."""

KEEP_SECONDS = 60.0
BLANK_INT, BLANK_DOUBLE = 0x7FFFFFFFFFFFFFF0, 2.0**47
GROUP_NAME, FIELDS_NAME, PROFILING_NAME = "secondsight", "secondsight_fields", "secondsight_profiling"

STATUS_NAMES = {
    "DCGM_ST_NOT_SUPPORTED": "not_supported",
    "DCGM_ST_NO_PERMISSION": "no_permission",
    "DCGM_ST_REQUIRES_ROOT": "no_permission",
    "DCGM_ST_STALE_DATA": "stale",
    "DCGM_ST_GPU_IS_LOST": "lost",
    "DCGM_ST_RESET_REQUIRED": "reset_required",
}
"""Statuses of single values; every other one but OK means that there is none."""

Value = list[Any]
"""[number of the entity, field, microseconds since 1970, what it is (`i`, `d`, `s` or a status), value]."""


@dataclass
class Entity:
    """One GPU or GPU instance."""

    group: int
    number: int
    facts: dict[str, str] = field(default_factory=dict)


def is_profiling(field_id: int) -> bool:
    """Tell whether a field is counted by the profiling module."""
    return PROFILING_FIRST <= field_id <= PROFILING_LAST


def one_pass(groups: Iterable[tuple[int, int, Sequence[int]]], wanted: Sequence[int]) -> list[int]:
    """Return the wanted fields that can be counted at once.

    Args:
        groups: (major, minor, fields) as the engine lists them: of one major only one minor fits into a pass.
        wanted: Fields to choose from, the more important first.
    """
    best: dict[int, tuple[list[int], int]] = {}
    for major, minor, fields in groups:
        hits = [one for one in wanted if one in fields]
        if major not in best or (len(hits), -minor) > (len(best[major][0]), -best[major][1]):
            best[major] = (hits, minor)
    chosen = {one for hits, _ in best.values() for one in hits}
    return [one for one in wanted if one in chosen]


class Engine:
    """One connection to a host engine. Every call may block for as long as the engine does."""

    def __init__(self, agent: Any, structs: Any, fields: Any, address: str, interval_ms: int) -> None:
        self._agent = agent
        self._structs = structs
        self._fields = fields
        self._interval_us = interval_ms * 1000
        self._statuses = {getattr(structs, name): word for name, word in STATUS_NAMES.items() if hasattr(structs, name)}
        structs._dcgmInit()
        agent.dcgmInit()
        if hasattr(fields, "DcgmFieldsInit"):
            fields.DcgmFieldsInit()
        self._handle = self._connect(address)
        self.entities: list[Entity] = []
        self.watched: list[int] = []
        self.left_out: dict[int, str] = {}
        self._groups: dict[str, Any] = {}
        self._group: Any = None
        self._blank_ticks = 0

    def _connect(self, address: str) -> Any:
        if not address.startswith("unix://"):
            return self._agent.dcgmConnect(address)
        params = self._structs.c_dcgmConnectV2Params_v2()
        params.version = self._structs.c_dcgmConnectV2Params_version2
        params.addressIsUnixSocket = 1
        return self._agent.dcgmConnect_v2(address.removeprefix("unix://"), params)

    def watch(self, wanted: Sequence[int]) -> None:
        """Find the GPUs and their instances, and watch fields of all of them."""
        self.entities = self._find()
        known = [one for one in wanted if self._is_known(one)]
        self.left_out = dict.fromkeys(set(wanted) - set(known), "unknown to this DCGM")
        self._group = self._agent.dcgmGroupCreate(self._handle, self._structs.DCGM_GROUP_EMPTY, GROUP_NAME)
        for entity in self.entities:
            self._agent.dcgmGroupAddEntity(self._handle, self._group, entity.group, entity.number)
        plain = [one for one in known if not is_profiling(one)]
        self._watch_group(FIELDS_NAME, plain)
        profiling = self._one_pass([one for one in known if is_profiling(one)])
        try:
            self._watch_group(PROFILING_NAME, profiling)
        except Exception as error:  # noqa: BLE001 # the bindings raise a class for each status
            self.left_out |= dict.fromkeys(profiling, f"profiling is not to be had: {error}")
            profiling = []
        self.watched = plain + profiling

    def _watch_group(self, name: str, field_ids: Sequence[int]) -> None:
        if not field_ids:
            return
        group = self._agent.dcgmFieldGroupCreate(self._handle, list(field_ids), name)
        self._groups[name] = group
        self._agent.dcgmWatchFields(self._handle, self._group, group, self._interval_us, KEEP_SECONDS, 0)

    def _one_pass(self, wanted: list[int]) -> list[int]:
        gpus = [entity.number for entity in self.entities if entity.group == self._fields.DCGM_FE_GPU]
        if not wanted or not gpus:
            return []
        try:
            told = self._agent.dcgmProfGetSupportedMetricGroups(self._handle, gpus[0])
        except Exception as error:  # noqa: BLE001 # the bindings raise a class for each status
            self.left_out |= dict.fromkeys(wanted, f"profiling is not to be had: {error}")
            return []
        groups = [told.metricGroups[place] for place in range(told.numMetricGroups)]
        listed = [(one.majorId, one.minorId, list(one.fieldIds[: one.numFieldIds])) for one in groups]
        chosen = one_pass(listed, wanted)
        self.left_out |= dict.fromkeys(set(wanted) - set(chosen), "does not fit into one pass of the counters")
        return chosen

    def _is_known(self, field_id: int) -> bool:
        found = self._fields.DcgmFieldGetById(field_id)
        return found is not None and bool(found)

    def _find(self) -> list[Entity]:
        numbers = self._agent.dcgmGetEntityGroupEntities(self._handle, self._fields.DCGM_FE_GPU, 0)
        gpus = {number: Entity(self._fields.DCGM_FE_GPU, number, self._facts(number)) for number in numbers}
        return [*gpus.values(), *self._instances(gpus)]

    def _facts(self, number: int) -> dict[str, str]:
        told = self._agent.dcgmGetDeviceAttributes(self._handle, number).identifiers
        named = {"UUID": told.uuid, "pci_bus_id": told.pciBusId, "modelName": told.deviceName}
        more = {"DCGM_FI_DRIVER_VERSION": told.driverVersion, "DCGM_FI_DEV_VBIOS_VERSION": told.vbios}
        more["DCGM_FI_DEV_SERIAL"] = told.serial
        return {"gpu": str(number)} | {name: _words(text) for name, text in (named | more).items()}

    def _instances(self, gpus: dict[int, Entity]) -> list[Entity]:
        """Return the GPU instances of MIG, each with the facts of its GPU."""
        try:
            told = self._agent.dcgmGetGpuInstanceHierarchy(self._handle)
        except Exception:  # noqa: BLE001 # engines and GPUs without MIG
            return []
        found = []
        for one in [told.entityList[place] for place in range(told.count)]:
            parent = gpus.get(one.parent.entityId)
            if one.entity.entityGroupId == self._fields.DCGM_FE_GPU_I and parent is not None:
                facts = parent.facts | {"GPU_I_ID": str(one.info.nvmlInstanceId)}
                found.append(Entity(one.entity.entityGroupId, one.entity.entityId, facts))
        return found

    def latest(self) -> list[Value]:
        """Return the latest value of every watched field of every entity."""
        places = {(entity.group, entity.number): place for place, entity in enumerate(self.entities)}
        pairs = [self._pair(entity) for entity in self.entities]
        if not pairs or not self.watched:
            return []
        told = self._agent.dcgmEntitiesGetLatestValues(self._handle, pairs, list(self.watched), 0)
        values = [self._value(places[one.entityGroupId, one.entityId], one) for one in told]
        self._look_at_profiling(values)
        return values

    def _pair(self, entity: Entity) -> Any:
        pair = self._structs.c_dcgmGroupEntityPair_t()
        pair.entityGroupId, pair.entityId = entity.group, entity.number
        return pair

    def _value(self, place: int, one: Any) -> Value:
        status = self._statuses.get(one.status, "none") if one.status != 0 else ""
        kind = chr(one.fieldType)
        if status:
            return [place, one.fieldId, one.ts, status, None]
        if kind in ("i", "t"):
            return [place, one.fieldId, one.ts, "i", int(one.value.i64)]
        if kind == "d":
            return [place, one.fieldId, one.ts, "d", float(one.value.dbl)]
        return [
            place,
            one.fieldId,
            one.ts,
            "s" if kind == "s" else "none",
            _words(one.value.str) if kind == "s" else None,
        ]

    def _look_at_profiling(self, values: Sequence[Value]) -> None:
        profiling = [value for value in values if is_profiling(value[1])]
        blank = bool(profiling) and all(_is_blank(value) for value in profiling)
        self._blank_ticks = self._blank_ticks + 1 if blank else 0
        if self._blank_ticks >= BLANK_TICKS:
            self._blank_ticks = 0
            group = self._groups[PROFILING_NAME]
            self._agent.dcgmUnwatchFields(self._handle, self._group, group)
            self._agent.dcgmWatchFields(self._handle, self._group, group, self._interval_us, KEEP_SECONDS, 0)

    def gpus_now(self) -> list[int]:
        """Return the numbers of the GPUs that the engine has now."""
        return list(self._agent.dcgmGetEntityGroupEntities(self._handle, self._fields.DCGM_FE_GPU, 0))


def _is_blank(value: Value) -> bool:
    _, _, _, kind, number = value
    return kind not in ("i", "d") or number >= (BLANK_INT if kind == "i" else BLANK_DOUBLE)


def _words(text: Any) -> str:
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text)
