"""The stub of NVML through the real binding: the ABI, return codes, hangs, lost GPUs, MIG, events."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from ctypes import byref
from pathlib import Path

import pynvml as nvml
import pytest

from nvml_fixture import Bind, bind, needs_compiler
from nvml_stub import build
from nvml_stub.scenario import Machine

pytestmark = needs_compiler
__all__ = ["bind"]

PATIENCE_SECONDS = 20.0


def code_of(call: Callable[[], object]) -> int:
    try:
        call()
    except nvml.NVMLError as error:
        return int(error.value)
    return 0


def started(bind: Bind, *lines: str, slot: int = 0, without: tuple[str, ...] = ()) -> tuple[Machine, object]:
    machine = bind(*lines, without=without)
    nvml.nvmlInit()
    return machine, nvml.nvmlDeviceGetHandleByIndex(slot)


def test_a_process_finds_the_library_by_its_path(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "machine", "host h100 4", "driver 535.104.05")
    program = "import pynvml as n; n.nvmlInit(); print(n.nvmlSystemGetDriverVersion(), n.nvmlDeviceGetCount())"
    environment = os.environ | machine.environment(build.library())
    told = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["535.104.05", "4"]


def test_every_symbol_of_the_binding_is_there(bind: Bind) -> None:
    started(bind, "host bare 1")
    assert [name for name in build.symbols() if not hasattr(nvml.nvmlLib, name)] == []
    assert len(build.symbols()) > 300


def test_what_nobody_set_is_not_supported_and_never_zero(bind: Bind) -> None:
    _, gpu = started(bind, "host bare 1")
    calls = [name for name in dir(nvml) if name.startswith("nvmlDeviceGet") and "Handle" not in name]
    answered = set()
    for name in calls:
        with suppress(TypeError, nvml.NVMLError_NotSupported):
            getattr(nvml, name)(gpu)
            answered.add(name.removeprefix("nvmlDeviceGet"))
    processes = {
        f"{kind}RunningProcesses{version}"
        for kind in ("Compute", "Graphics", "MPSCompute")
        for version in ("", "_v2", "_v3")
    }
    known = {"Index", "MinorNumber", "PciInfo", "PciInfo_v3", "Serial", "UUID", "GspFirmwareVersion"}
    assert answered == known | (processes & {name.removeprefix("nvmlDeviceGet") for name in calls})


def test_values_come_back_as_they_were_set(bind: Bind) -> None:
    _, gpu = started(
        bind,
        "host bare 1",
        "gpu 0 nvmlDeviceGetMemoryInfo_v2.total = 150754820096",
        "gpu 0 nvmlDeviceGetMemoryInfo_v2.reserved = 654311424",
        "gpu 0 nvmlDeviceGetMemoryInfo_v2.used = 97710505984",
        "gpu 0 nvmlDeviceGetMemoryInfo_v2.free = 52390002688",
        "gpu 0 nvmlDeviceGetClock(SM,APP_CLOCK_TARGET) = 1980",
        "gpu 0 nvmlDeviceGetClockInfo(MEM) = 3201",
        "gpu 0 nvmlDeviceGetTemperatureV(GPU) = -4",
        "gpu 0 nvmlDeviceGetMarginTemperature = -3",
        "gpu 0 nvmlDeviceGetTotalEnergyConsumption = 18446744073709551614",
        "gpu 0 nvmlDeviceGetRowRemapperHistogram.max = 5376",
        *(f"gpu 0 nvmlDeviceGetRowRemapperHistogram.{name} = 1" for name in ("high", "partial", "low", "none")),
        "gpu 0 nvmlDeviceGetNvLinkState(0-3,5) = 1",
        "gpu 0 nvmlDeviceGetNvLinkErrorCounter.crc_data(5) = 9",
        "gpu 0 nvmlDeviceGetSramEccErrorStatus.aggregateUncParity = 7",
    )
    second = nvml.nvmlDeviceGetMemoryInfo(gpu, version=nvml.nvmlMemory_v2)
    assert (second.total, second.reserved, second.used) == (150754820096, 654311424, 97710505984)
    assert nvml.nvmlDeviceGetMemoryInfo(gpu).used == 97710505984 + 654311424
    assert nvml.nvmlDeviceGetClock(gpu, nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_ID_APP_CLOCK_TARGET) == 1980
    assert nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM) == 3201
    assert code_of(lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)) == 3
    assert nvml.nvmlDeviceGetTemperatureV(gpu, nvml.NVML_TEMPERATURE_GPU) == -4
    assert nvml.nvmlDeviceGetMarginTemperature(gpu) == -3
    assert nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) == 18446744073709551614
    assert nvml.nvmlDeviceGetRowRemapperHistogram(gpu).max == 5376
    assert [nvml.nvmlDeviceGetNvLinkState(gpu, link) for link in (0, 3, 5)] == [1, 1, 1]
    assert code_of(lambda: nvml.nvmlDeviceGetNvLinkState(gpu, 4)) == 3
    assert code_of(lambda: nvml.nvmlDeviceGetNvLinkState(gpu, 36)) == 2
    assert nvml.nvmlDeviceGetNvLinkErrorCounter(gpu, 5, nvml.NVML_NVLINK_ERROR_DL_CRC_DATA) == 9
    assert code_of(lambda: nvml.nvmlDeviceGetSramEccErrorStatus(gpu, byref(nvml.c_nvmlEccSramErrorStatus_v1_t()))) == 3


def test_structs_of_another_version_are_refused(bind: Bind) -> None:
    _, gpu = started(bind, "host h200 1")
    assert code_of(lambda: nvml.nvmlDeviceGetMemoryInfo(gpu, version=0x03000028)) == 25
    fabric = nvml.c_nvmlGpuFabricInfo_v3_t()
    nvml.nvmlDeviceGetGpuFabricInfoV(gpu, byref(fabric))
    assert (fabric.state, fabric.healthMask, fabric.healthSummary) == (3, 0x21AA, 1)
    older = nvml.c_nvmlGpuFabricInfo_v2_t()
    nvml.nvmlDeviceGetGpuFabricInfoV(gpu, byref(older))
    assert older.healthMask == fabric.healthMask
    newest = nvml.c_nvmlGpuFabricInfo_v4_t()
    nvml.nvmlDeviceGetGpuFabricInfo_v4(gpu, byref(newest))
    assert (newest.state, newest.numCliques) == (3, 1)
    fabric.version = 0x04000028
    assert code_of(lambda: nvml.nvmlDeviceGetGpuFabricInfoV(gpu, byref(fabric))) == 25


@pytest.mark.parametrize(
    ("kind", "text", "member", "expected"),
    [
        ("ui", "4294967295", "uiVal", 4294967295),
        ("ull", "0xffffffffffffffff", "ullVal", 2**64 - 1),
        ("ul", "9007199254740993", "ulVal", 9007199254740993),
        ("sll", "-9007199254740993", "sllVal", -9007199254740993),
        ("si", "-8", "siVal", -8),
        ("us", "65535", "usVal", 65535),
        ("double", "61.25", "dVal", 61.25),
    ],
)
def test_field_values_of_every_type(bind: Bind, kind: str, text: str, member: str, expected: float) -> None:
    _, gpu = started(bind, "host bare 1", f"gpu 0 field 82 = {text}", f"gpu 0 field 82 type {kind}")
    value = nvml.nvmlDeviceGetFieldValues(gpu, [82])[0]
    assert value.nvmlReturn == 0
    assert getattr(value.value, member) == expected


def test_one_batch_of_fields_answers_each_for_itself(bind: Bind) -> None:
    _, gpu = started(
        bind,
        "host bare 1",
        "gpu 0 field 83 = 5",
        "gpu 0 field 83 type ull",
        "gpu 0 field 144 return 4",
        "gpu 0 field 138 scope 0-2 = 10",
        "gpu 0 field 138 scope 2 = 12",
        "gpu 0 field 138 type ull",
    )
    asked = [83, 144, (138, 0), (138, 2), (138, 7), (138, 0xFFFFFFFF), 29, 999]
    values = nvml.nvmlDeviceGetFieldValues(gpu, asked)
    assert [value.nvmlReturn for value in values] == [0, 4, 0, 0, 2, 0, 3, 2]
    assert [values[place].value.ullVal for place in (0, 2, 3, 5)] == [5, 10, 12, 32]
    assert abs(values[0].timestamp / 1e6 - time.time()) < PATIENCE_SECONDS


def test_scripted_codes_for_a_call_a_gpu_and_all(bind: Bind) -> None:
    machine, gpu = started(bind, "host h200 2")
    other = nvml.nvmlDeviceGetHandleByIndex(1)
    for code in (3, 4, 13, 15, 18, 999):
        machine.append(f"gpu 0 call nvmlDeviceGetTemperatureV return {code}")
        wait_for(lambda code=code: code_of(lambda: nvml.nvmlDeviceGetTemperatureV(gpu, 0)) == code)
    assert code_of(lambda: nvml.nvmlDeviceGetTemperatureV(other, 0)) == 0
    machine.append("gpu 0 call nvmlDeviceGetTemperatureV return 0", "gpu 1 call * return 999")
    wait_for(lambda: code_of(lambda: nvml.nvmlDeviceGetTemperatureV(gpu, 0)) == 0)
    assert code_of(lambda: nvml.nvmlDeviceGetUUID(other)) == 999
    machine.append("call nvmlDeviceGetVgpuSchedulerState return 4")
    wait_for(lambda: code_of(lambda: nvml.nvmlDeviceGetVgpuSchedulerState(gpu)) == 4)


def test_initialisation_fails_until_the_driver_fits(bind: Bind) -> None:
    machine = bind("host h200 1", "init return 18")
    assert code_of(nvml.nvmlInit) == 18
    assert code_of(nvml.nvmlDeviceGetCount) == 1
    machine.append("init return 0", "driver 580.95.05")
    wait_for(lambda: code_of(nvml.nvmlInit) == 0)
    assert nvml.nvmlSystemGetDriverVersion() == "580.95.05"


def test_without_a_scenario_there_is_no_driver(bind: Bind) -> None:
    bind().path.unlink()
    time.sleep(0.01)
    assert code_of(nvml.nvmlInit) == 9


def test_a_library_that_lacks_a_symbol(bind: Bind) -> None:
    _, gpu = started(bind, "host h200 1", without=("nvmlDeviceGetTemperatureV",))
    assert code_of(lambda: nvml.nvmlDeviceGetTemperatureV(gpu, 0)) == 13
    assert nvml.nvmlDeviceGetTemperature(gpu, 0) > 0


def test_a_lost_gpu_is_listed_and_a_vanished_one_is_not(bind: Bind) -> None:
    machine, gpu = started(bind, "host h200 3")
    uuids = [nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(i)) for i in range(3)]
    machine.append("gpu 0 lost")
    wait_for(lambda: code_of(lambda: nvml.nvmlDeviceGetPowerUsage(gpu)) == 15)
    assert nvml.nvmlDeviceGetCount() == 3
    assert code_of(lambda: nvml.nvmlDeviceGetHandleByIndex(0)) == 15
    machine.append("gpu 0 back", "gpu 0 vanish")
    wait_for(lambda: nvml.nvmlDeviceGetCount() == 2)
    assert code_of(lambda: nvml.nvmlDeviceGetPowerUsage(gpu)) == 15
    assert code_of(lambda: nvml.nvmlDeviceGetHandleByUUID(uuids[0])) == 6
    assert nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(0)) == uuids[1]
    machine.append("gpu 0 back")
    wait_for(lambda: nvml.nvmlDeviceGetCount() == 3)
    assert nvml.nvmlDeviceGetUUID(gpu) == uuids[0]


def test_the_listing_may_stay_until_the_next_initialisation(bind: Bind) -> None:
    machine, _ = started(bind, "host h200 2", "listing at_init")
    machine.append("gpu 1 vanish")
    time.sleep(0.02)
    assert nvml.nvmlDeviceGetCount() == 2
    nvml.nvmlShutdown()
    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetCount() == 1


def test_the_order_of_gpus_is_neither_minor_nor_slot(bind: Bind) -> None:
    lines = ("gpu 0 index = 1", "gpu 1 index = 0", "gpu 0 minor = 7", "gpu 0 pci = 0001:3b:00.0")
    _, first = started(bind, "host h200 2", *lines)
    second = nvml.nvmlDeviceGetHandleByIndex(1)
    assert nvml.nvmlDeviceGetIndex(second) == 1
    assert nvml.nvmlDeviceGetMinorNumber(second) == 7
    assert nvml.nvmlDeviceGetMinorNumber(first) == 1
    pci = nvml.nvmlDeviceGetPciInfo(second)
    assert (pci.domain, pci.bus, pci.device, pci.busId) == (1, 0x3B, 0, "00000001:3B:00.0")
    found = nvml.nvmlDeviceGetHandleByPciBusId("0001:3b:00.0")
    assert nvml.nvmlDeviceGetUUID(found) == nvml.nvmlDeviceGetUUID(second)


def test_a_hang_holds_its_caller_alone_and_ends_when_it_is_taken_back(bind: Bind) -> None:
    machine, gpu = started(bind, "host h200 2")
    other = nvml.nvmlDeviceGetHandleByIndex(1)
    answered = threading.Event()

    def ask() -> None:
        nvml.nvmlDeviceGetUtilizationRates(gpu)
        answered.set()

    with machine.while_stated("gpu 0 call nvmlDeviceGetUtilizationRates delay 600000"):
        time.sleep(0.02)
        asking = threading.Thread(target=ask)
        asking.start()
        assert nvml.nvmlDeviceGetUtilizationRates(other).gpu > 0
        assert nvml.nvmlDeviceGetPowerUsage(gpu) > 0
        assert not answered.is_set()
    assert answered.wait(PATIENCE_SECONDS)
    asking.join()


def test_counters_grow_by_rate_from_the_given_start(bind: Bind) -> None:
    begin_ms = int(time.time() * 1000) - 1_000_000
    _, gpu = started(bind, "host bare 1", f"start {begin_ms}", "gpu 0 field 83 = 7 +1000/s", "gpu 0 field 83 type ull")
    value = nvml.nvmlDeviceGetFieldValues(gpu, [83])[0]
    elapsed_ms = value.timestamp / 1000 - begin_ms
    assert value.value.ullVal == pytest.approx(7 + elapsed_ms, abs=50)


def test_noise_is_the_same_for_one_seed_and_instant(bind: Bind) -> None:
    _, gpu = started(bind, "host bare 2", "gpu * nvmlDeviceGetPowerUsage = 500000 ~1000")
    seen = {nvml.nvmlDeviceGetPowerUsage(gpu) for _ in range(200)}
    assert all(499_000 <= watts <= 501_000 for watts in seen)
    assert len(seen) <= 3
    assert nvml.nvmlDeviceGetPowerUsage(nvml.nvmlDeviceGetHandleByIndex(1)) not in seen


def test_no_counter_of_a_product_falls(bind: Bind) -> None:
    _, gpu = started(bind, "host h200 1")
    before = [0] * 4
    for _ in range(8):
        now = [value.value.ullVal for value in nvml.nvmlDeviceGetFieldValues(gpu, [83, 197, 198, (138, 4)])]
        assert all(later >= earlier for earlier, later in zip(before, now, strict=True))
        before = now
        time.sleep(0.05)


def gpm(gpu: object, metrics: list[int], gi: int | None = None) -> list[tuple[int, float]]:
    samples = [nvml.nvmlGpmSampleAlloc() for _ in range(2)]
    for sample in samples:
        nvml.nvmlGpmSampleGet(gpu, sample) if gi is None else nvml.nvmlGpmMigSampleGet(gpu, gi, sample)
    asked = nvml.c_nvmlGpmMetricsGet_t(version=1, numMetrics=len(metrics), sample1=samples[0], sample2=samples[1])
    for place, metric in enumerate(metrics):
        asked.metrics[place].metricId = metric
    nvml.nvmlGpmMetricsGet(asked)
    for sample in samples:
        nvml.nvmlGpmSampleFree(sample)
    return [(asked.metrics[place].nvmlReturn, asked.metrics[place].value) for place in range(len(metrics))]


def test_gpm_metrics_each_with_a_code(bind: Bind) -> None:
    _, gpu = started(bind, "host a100 2", "gpu 0 gpm 2 = 84.125", "gpu 0 gpm 5 return 3")
    assert nvml.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice == 1
    other = nvml.nvmlDeviceGetHandleByIndex(1)
    assert nvml.nvmlGpmQueryDeviceSupport(other).isSupportedDevice == 0
    assert code_of(lambda: gpm(other, [2])) == 3
    found = gpm(gpu, [2, 5, 60])
    assert found[0] == (0, 84.125)
    assert [code for code, _ in found] == [0, 3, 3]


def test_mig_devices_stand_for_themselves(bind: Bind) -> None:
    machine, gpu = started(
        bind,
        "host h200 2",
        "gpu 0 mig 0 gi 5 ci 0 profile 1g.18gb memory 18253611008 slices 1",
        "gpu 0 mig 2 gi 3 ci 1 profile 3g.71gb memory 75161927680 slices 3",
        "gpu 0 mig 2 gpm 2 = 40.5",
        "gpu 0 process 77 compute memory 4096 gi 3 ci 1",
        "gpu 0 process 78 compute memory 8192 gi 5 ci 0",
    )
    assert nvml.nvmlDeviceGetMigMode(gpu) == [1, 1]
    assert code_of(lambda: nvml.nvmlDeviceGetUtilizationRates(gpu)) == 3
    assert code_of(lambda: nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 1)) == 6
    assert nvml.nvmlDeviceGetMaxMigDeviceCount(gpu) == 7
    mig = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 2)
    assert nvml.nvmlDeviceIsMigDeviceHandle(mig)
    assert (nvml.nvmlDeviceGetGpuInstanceId(mig), nvml.nvmlDeviceGetComputeInstanceId(mig)) == (3, 1)
    assert nvml.nvmlDeviceGetName(mig) == "NVIDIA H200 MIG 3g.71gb"
    assert nvml.nvmlDeviceGetUUID(mig).startswith("MIG-")
    found = nvml.nvmlDeviceGetHandleByUUID(nvml.nvmlDeviceGetUUID(mig))
    parent = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(found)
    assert nvml.nvmlDeviceGetUUID(parent) == nvml.nvmlDeviceGetUUID(gpu)
    assert nvml.nvmlDeviceGetMemoryInfo(mig, version=nvml.nvmlMemory_v2).total == 75161927680
    assert nvml.nvmlDeviceGetAttributes(mig).gpuInstanceSliceCount == 3
    assert gpm(gpu, [2], gi=3) == [(0, 40.5)]
    assert [one.pid for one in nvml.nvmlDeviceGetComputeRunningProcesses(mig)] == [77]
    assert len(nvml.nvmlDeviceGetComputeRunningProcesses(gpu)) == 2
    instance = nvml.nvmlGpuInstanceGetInfo(nvml.nvmlDeviceGetGpuInstanceById(gpu, 3))
    assert (instance.id, instance.profileId) == (3, 9)
    info = nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, nvml.NVML_GPU_INSTANCE_PROFILE_3_SLICE)
    assert info.name == "MIG 3g.71gb"
    machine.append("gpu 0 mig off")
    wait_for(lambda: code_of(lambda: nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 2)) == 6)
    assert code_of(lambda: nvml.nvmlDeviceGetMemoryInfo(mig)) == 15


def test_processes_and_their_use(bind: Bind) -> None:
    _, gpu = started(
        bind,
        "host h200 1",
        "gpu 0 process 4242 compute memory 1073741824 sm 40 mem 12 stamp 1000",
        "gpu 0 process 4243 compute memory none",
        "gpu 0 process 4244 mps memory 5",
        "process 4242 name python3",
    )
    running = nvml.nvmlDeviceGetComputeRunningProcesses(gpu)
    assert [(one.pid, one.usedGpuMemory) for one in running] == [(4242, 1073741824), (4243, None)]
    assert [one.pid for one in nvml.nvmlDeviceGetMPSComputeRunningProcesses(gpu)] == [4244]
    assert nvml.nvmlDeviceGetGraphicsRunningProcesses(gpu) == []
    used = next(one for one in nvml.nvmlDeviceGetProcessUtilization(gpu, 0) if one.pid == 4242)
    assert (used.smUtil, used.memUtil, used.timeStamp) == (40, 12, 1000)
    assert 4242 not in {one.pid for one in nvml.nvmlDeviceGetProcessUtilization(gpu, 1000)}
    assert nvml.nvmlSystemGetProcessName(4242) == "python3"
    assert code_of(lambda: nvml.nvmlSystemGetProcessName(4243)) == 6


def test_events_reach_a_set_once_and_in_order(bind: Bind) -> None:
    machine, gpu = started(bind, "host h200 2", "event 1 gpu 0 xid 31")
    events = nvml.nvmlEventSetCreate()
    assert nvml.nvmlDeviceGetSupportedEventTypes(gpu) & nvml.nvmlEventTypeXidCriticalError
    assert code_of(lambda: nvml.nvmlDeviceRegisterEvents(gpu, 1 << 40, events)) == 3
    nvml.nvmlDeviceRegisterEvents(gpu, nvml.nvmlEventTypeXidCriticalError, events)
    machine.event(0, "xid 79 gi 3 ci 1")
    machine.event(1, "xid 48")
    machine.event(0, "type 0x2 data 1")
    first, second = (nvml.nvmlEventSetWait_v2(events, 5000) for _ in range(2))
    assert (first.eventType, first.eventData, first.gpuInstanceId) == (8, 31, 0xFFFFFFFF)
    assert (second.eventData, second.gpuInstanceId, second.computeInstanceId) == (79, 3, 1)
    assert nvml.nvmlDeviceGetUUID(second.device) == nvml.nvmlDeviceGetUUID(gpu)
    assert code_of(lambda: nvml.nvmlEventSetWait_v2(events, 1)) == 10
    timer = threading.Timer(0.05, machine.event, (0, "xid 94"))
    timer.start()
    assert nvml.nvmlEventSetWait_v2(events, int(PATIENCE_SECONDS * 1000)).eventData == 94
    timer.join()
    machine.append("gpu 0 lost")
    wait_for(lambda: code_of(lambda: nvml.nvmlEventSetWait_v2(events, 1)) == 15)
    nvml.nvmlEventSetFree(events)


def test_retired_pages_by_cause(bind: Bind) -> None:
    _, gpu = started(
        bind,
        "host a100 1",
        "gpu 0 nvmlDeviceGetRetiredPagesPendingStatus = 1",
        "gpu 0 retired double 0x1000 stamp 5",
        "gpu 0 retired single 0x2000",
    )
    assert nvml.nvmlDeviceGetRetiredPages_v2(gpu, 1) == [{"address": 0x1000, "timestamp": 5}]
    assert nvml.nvmlDeviceGetRetiredPages(gpu, 0) == [0x2000]
    assert nvml.nvmlDeviceGetRetiredPagesPendingStatus(gpu) == 1


def test_a_line_that_is_not_understood_fails_every_call(bind: Bind, capfd: pytest.CaptureFixture[str]) -> None:
    bind("host h200 1", "gpu 0 nvmlDeviceGetPowerUsag = 3")
    assert code_of(nvml.nvmlInit) == 999
    assert "machine:2 not understood: gpu 0 nvmlDeviceGetPowerUsag = 3" in capfd.readouterr().err


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until the stub has seen a change of its file."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)
