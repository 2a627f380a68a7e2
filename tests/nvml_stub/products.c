/* Products as lines of a scenario: plausible values at work, with the noise that real ones have. */
#include "stub.h"

#include <string.h>

/* What every data centre GPU answers. Ids of field values are NVML's. */
#define COMMON \
    "vbios = 96.00.A5.00.01\n" \
    "board_part = 692-2G520-0200-000\n" \
    "inforom = G520.0202.00.05\n" \
    "nvmlDeviceGetBrand = 14\n" \
    "nvmlDeviceGetPersistenceMode = 1\n" \
    "nvmlDeviceGetComputeMode = 0\n" \
    "nvmlDeviceGetDisplayMode = 0\n" \
    "nvmlDeviceGetDisplayActive = 0\n" \
    "nvmlDeviceGetAddressingMode = 0\n" \
    "nvmlDeviceGetVirtualizationMode = 0\n" \
    "nvmlDeviceGetNumaNodeId return 3\n" \
    "nvmlDeviceGetBusType = 2\n" \
    "nvmlDeviceGetGspFirmwareMode.enabled = 1\n" \
    "nvmlDeviceGetGspFirmwareMode.default = 1\n" \
    "nvmlDeviceGetUtilizationRates.gpu = 82 ~17\n" \
    "nvmlDeviceGetUtilizationRates.memory = 41 ~20\n" \
    "nvmlDeviceGetEncoderUtilization = 0\n" \
    "nvmlDeviceGetDecoderUtilization = 0\n" \
    "nvmlDeviceGetJpgUtilization = 0\n" \
    "nvmlDeviceGetOfaUtilization = 0\n" \
    "nvmlDeviceGetAdaptiveClockInfoStatus = 1\n" \
    "nvmlDeviceGetPerformanceState = 0\n" \
    "nvmlDeviceGetPowerState = 0\n" \
    "nvmlDeviceGetTemperatureV(GPU) = 58 ~3\n" \
    "nvmlDeviceGetTemperatureThreshold(SHUTDOWN) = 92\n" \
    "nvmlDeviceGetTemperatureThreshold(SLOWDOWN) = 87\n" \
    "nvmlDeviceGetTemperatureThreshold(MEM_MAX) = 95\n" \
    "nvmlDeviceGetTemperatureThreshold(GPU_MAX) = 85\n" \
    "nvmlDeviceGetMarginTemperature = 29 ~3\n" \
    "nvmlDeviceGetPowerManagementMode = 1\n" \
    "nvmlDeviceGetPcieReplayCounter = 0\n" \
    "nvmlDeviceGetPcieThroughput(TX_BYTES) = 812000 ~300000\n" \
    "nvmlDeviceGetPcieThroughput(RX_BYTES) = 1530000 ~600000\n" \
    "call nvmlDeviceGetPcieThroughput delay 20\n" \
    "nvmlDeviceGetEccMode.current = 1\n" \
    "nvmlDeviceGetEccMode.pending = 1\n" \
    "nvmlDeviceGetDefaultEccMode = 1\n" \
    "nvmlDeviceGetTotalEccErrors(CORRECTED,VOLATILE) = 2\n" \
    "nvmlDeviceGetTotalEccErrors(CORRECTED,AGGREGATE) = 14\n" \
    "nvmlDeviceGetTotalEccErrors(UNCORRECTED,VOLATILE) = 0\n" \
    "nvmlDeviceGetTotalEccErrors(UNCORRECTED,AGGREGATE) = 0\n" \
    "nvmlDeviceGetMemoryErrorCounter.corrected_volatile(2,7) = 1\n" \
    "nvmlDeviceGetMemoryErrorCounter.corrected_aggregate(2,7) = 7\n" \
    "nvmlDeviceGetMemoryErrorCounter.uncorrected_volatile(2,7) = 0\n" \
    "nvmlDeviceGetMemoryErrorCounter.uncorrected_aggregate(2,7) = 0\n" \
    "nvmlDeviceGetCurrentClocksEventReasons = 0\n" \
    "nvmlDeviceGetSupportedClocksEventReasons = 0x1ff\n" \
    "nvmlDeviceGetViolationStatus(POWER) = 51000000000 +9000000/s\n" \
    "nvmlDeviceGetViolationStatus(THERMAL) = 0\n" \
    "nvmlDeviceGetViolationStatus(SYNC_BOOST) = 0\n" \
    "nvmlDeviceGetViolationStatus(BOARD_LIMIT) = 0\n" \
    "nvmlDeviceGetViolationStatus(LOW_UTILIZATION) = 0\n" \
    "nvmlDeviceGetViolationStatus(RELIABILITY) = 0\n" \
    "nvmlDeviceGetMigMode.current = 0\n" \
    "nvmlDeviceGetMigMode.pending = 0\n" \
    "nvmlDeviceGetMaxMigDeviceCount = 7\n" \
    "nvmlDeviceGetAccountingMode = 0\n" \
    "nvmlDeviceGetAccountingBufferSize = 4000\n" \
    "field 1 = 1\nfield 1 type ui\n" \
    "field 2 = 1\nfield 2 type ui\n" \
    "field 3 = 2\nfield 3 type ull\n" \
    "field 4 = 0\nfield 4 type ull\n" \
    "field 5 = 14\nfield 5 type ull\n" \
    "field 6 = 0\nfield 6 type ull\n" \
    "field 74 = 51000000000 +9000000/s\nfield 74 type ull\n" \
    "field 75 = 0\nfield 75 type ull\n" \
    "field 76 = 0\nfield 76 type ull\n" \
    "field 77 = 0\nfield 77 type ull\n" \
    "field 78 = 0\nfield 78 type ull\n" \
    "field 79 = 0\nfield 79 type ull\n" \
    "field 94 = 0\nfield 94 type ui\n" \
    "field 95 = 0\nfield 95 type ui\n" \
    "field 142 = 0\nfield 142 type ui\n" \
    "field 143 = 0\nfield 143 type ui\n" \
    "field 144 = 0\nfield 144 type ui\n" \
    "field 145 = 0\nfield 145 type ui\n" \
    "field 174 = 0\nfield 174 type ui\n" \
    "field 230 = 0\nfield 230 type ui\n" \
    "nvmlDeviceGetRemappedRows.corrected = 0\n" \
    "nvmlDeviceGetRemappedRows.uncorrected = 0\n" \
    "nvmlDeviceGetRemappedRows.pending = 0\n" \
    "nvmlDeviceGetRemappedRows.failed = 0\n" \
    "nvmlDeviceGetUnrepairableMemoryFlag_v1 = 0\n" \
    "nvmlDeviceGetRepairStatus.channel = 0\n" \
    "nvmlDeviceGetRepairStatus.tpc = 0\n"

/* What Ampere and later have for data centres; Ada cards without HBM lack part of it. */
#define REMAPPER(banks) \
    "nvmlDeviceGetRowRemapperHistogram.max = " banks "\n" \
    "nvmlDeviceGetRowRemapperHistogram.high = 0\n" \
    "nvmlDeviceGetRowRemapperHistogram.partial = 0\n" \
    "nvmlDeviceGetRowRemapperHistogram.low = 0\n" \
    "nvmlDeviceGetRowRemapperHistogram.none = 0\n"

#define HBM_TEMPERATURE "field 82 = 64 ~3\nfield 82 type ui\n"

#define CLOCKS(graphics, memory, video) \
    "nvmlDeviceGetClockInfo(GRAPHICS) = " graphics " ~90\n" \
    "nvmlDeviceGetClockInfo(SM) = " graphics " ~90\n" \
    "nvmlDeviceGetClockInfo(MEM) = " memory "\n" \
    "nvmlDeviceGetClockInfo(VIDEO) = " video " ~60\n" \
    "nvmlDeviceGetMaxClockInfo(MEM) = " memory "\n" \
    "nvmlDeviceGetMaxCustomerBoostClock(MEM) = " memory "\n" \
    "nvmlDeviceGetApplicationsClock(MEM) = " memory "\n" \
    "nvmlDeviceGetDefaultApplicationsClock(MEM) = " memory "\n"

#define BOOST(graphics, base) \
    "nvmlDeviceGetMaxClockInfo(GRAPHICS) = " graphics "\n" \
    "nvmlDeviceGetMaxClockInfo(SM) = " graphics "\n" \
    "nvmlDeviceGetMaxClockInfo(VIDEO) = " graphics "\n" \
    "nvmlDeviceGetMaxCustomerBoostClock(GRAPHICS) = " graphics "\n" \
    "nvmlDeviceGetMaxCustomerBoostClock(SM) = " graphics "\n" \
    "nvmlDeviceGetApplicationsClock(GRAPHICS) = " graphics "\n" \
    "nvmlDeviceGetApplicationsClock(SM) = " graphics "\n" \
    "nvmlDeviceGetClock(SM,APP_CLOCK_TARGET) = " graphics "\n" \
    "nvmlDeviceGetClock(SM,CUSTOMER_BOOST_MAX) = " graphics "\n" \
    "nvmlDeviceGetDefaultApplicationsClock(GRAPHICS) = " base "\n" \
    "nvmlDeviceGetDefaultApplicationsClock(SM) = " base "\n" \
    "nvmlDeviceGetClock(SM,APP_CLOCK_DEFAULT) = " base "\n"

/* Milliwatts. */
#define POWER(limit, draw, noise) \
    "nvmlDeviceGetPowerUsage = " draw " ~" noise "\n" \
    "nvmlDeviceGetEnforcedPowerLimit = " limit "\n" \
    "nvmlDeviceGetPowerManagementLimit = " limit "\n" \
    "nvmlDeviceGetPowerManagementDefaultLimit = " limit "\n" \
    "nvmlDeviceGetPowerManagementLimitConstraints.minimum = 200000\n" \
    "nvmlDeviceGetPowerManagementLimitConstraints.maximum = " limit "\n" \
    "nvmlDeviceGetTotalEnergyConsumption = 184000000 +" draw "/s ~" noise "\n" \
    "field 83 = 184000000 +" draw "/s ~" noise "\nfield 83 type ull\n" \
    "field 185 = " draw " ~" noise "\nfield 185 type ui\n" \
    "field 186 = " draw " ~" noise "\nfield 186 type ui\n" \
    "field 187 = 200000\nfield 187 type ui\n" \
    "field 188 = " limit "\nfield 188 type ui\n" \
    "field 189 = " limit "\nfield 189 type ui\n" \
    "field 190 = " limit "\nfield 190 type ui\n" \
    "field 192 = " limit "\nfield 192 type ui\n"

#define MEMORY(total, reserved, used, free) \
    "nvmlDeviceGetMemoryInfo_v2.total = " total "\n" \
    "nvmlDeviceGetMemoryInfo_v2.reserved = " reserved "\n" \
    "nvmlDeviceGetMemoryInfo_v2.used = " used " ~1000000000\n" \
    "nvmlDeviceGetMemoryInfo_v2.free = " free " ~1000000000\n" \
    "nvmlDeviceGetBAR1MemoryInfo.bar1Total = 274877906944\n" \
    "nvmlDeviceGetBAR1MemoryInfo.bar1Used = 14680064 ~4194304\n" \
    "nvmlDeviceGetBAR1MemoryInfo.bar1Free = 274863226880 ~4194304\n"

#define PCIE(generation) \
    "nvmlDeviceGetCurrPcieLinkGeneration = " generation "\n" \
    "nvmlDeviceGetCurrPcieLinkWidth = 16\n" \
    "nvmlDeviceGetMaxPcieLinkGeneration = " generation "\n" \
    "nvmlDeviceGetMaxPcieLinkWidth = 16\n" \
    "nvmlDeviceGetGpuMaxPcieLinkGeneration = " generation "\n" \
    "nvmlDeviceGetPcieLinkMaxSpeed = " generation "\n"

/* Counters of the PCIe link that came with Hopper, throttle times of driver 570, and limits of temperature. */
#define HOPPER_FIELDS \
    "field 169 = 3\nfield 169 type ui\n" \
    "field 173 = 0\nfield 173 type ui\n" \
    "field 175 = 0\nfield 175 type ui\n" \
    "field 179 = 0\nfield 179 type ui\n" \
    "field 180 = 0\nfield 180 type ui\n" \
    "field 193 = -8\nfield 193 type si\n" \
    "field 194 = -2\nfield 194 type si\n" \
    "field 195 = 0\nfield 195 type si\n" \
    "field 196 = 0\nfield 196 type si\n" \
    "field 197 = 81000000000 +812000000/s ~300000000\nfield 197 type ull\n" \
    "field 198 = 153000000000 +1530000000/s ~600000000\nfield 198 type ull\n" \
    "field 269 = 0\nfield 269 type ull\n" \
    "field 270 = 0\nfield 270 type ull\n" \
    "field 271 = 0\nfield 271 type ull\n" \
    "nvmlDeviceGetSramEccErrorStatus.aggregateUncParity = 0\n" \
    "nvmlDeviceGetSramEccErrorStatus.aggregateUncSecDed = 0\n" \
    "nvmlDeviceGetSramEccErrorStatus.aggregateCor = 4\n" \
    "nvmlDeviceGetSramEccErrorStatus.volatileUncParity = 0\n" \
    "nvmlDeviceGetSramEccErrorStatus.volatileUncSecDed = 0\n" \
    "nvmlDeviceGetSramEccErrorStatus.volatileCor = 1\n" \
    "nvmlDeviceGetSramEccErrorStatus.aggregateUncBucketL2 = 0\n" \
    "nvmlDeviceGetSramEccErrorStatus.aggregateUncBucketSm = 0\n" \
    "nvmlDeviceGetSramEccErrorStatus.aggregateUncBucketPcie = 0\n" \
    "nvmlDeviceGetSramEccErrorStatus.aggregateUncBucketMcu = 0\n" \
    "nvmlDeviceGetSramEccErrorStatus.aggregateUncBucketOther = 0\n" \
    "nvmlDeviceGetSramEccErrorStatus.bThresholdExceeded = 0\n" \
    "nvmlDeviceGetSupportedEventTypes = 0xd19f\n" \
    "nvmlDeviceGetGpuFabricInfoV.state = 3\n" \
    "nvmlDeviceGetGpuFabricInfoV.status = 0\n" \
    "nvmlDeviceGetGpuFabricInfoV.cliqueId = 0\n" \
    "nvmlDeviceGetGpuFabricInfoV.healthMask = 0x21aa\n" \
    "nvmlDeviceGetGpuFabricInfoV.healthSummary = 1\n"

/* links: "0-17"; version 6 is NVLink 4. The speed is in Mb/s. */
#define NVLINK(count, links, version, speed) \
    "nvmlDeviceGetNvLinkState(" links ") = 1\n" \
    "nvmlDeviceGetNvLinkVersion(" links ") = " version "\n" \
    "nvmlDeviceGetNvLinkRemoteDeviceType(" links ") = 2\n" \
    "nvmlDeviceGetNvLinkCapability.p2p(" links ") = 1\n" \
    "nvmlDeviceGetNvLinkErrorCounter.replay(" links ") = 0\n" \
    "nvmlDeviceGetNvLinkErrorCounter.recovery(" links ") = 0\n" \
    "nvmlDeviceGetNvLinkErrorCounter.crc_flit(" links ") = 0\n" \
    "nvmlDeviceGetNvLinkErrorCounter.crc_data(" links ") = 0\n" \
    "field 38 = 0\nfield 38 type ull\n" \
    "field 45 = 0\nfield 45 type ull\n" \
    "field 52 = 0\nfield 52 type ull\n" \
    "field 59 = 0\nfield 59 type ull\n" \
    "field 90 = " speed "\nfield 90 type ui\n" \
    "field 91 = " count "\nfield 91 type ui\n" \
    "field 138 scope " links " = 911000000 +2400000/s ~900000\nfield 138 type ull\n" \
    "field 139 scope " links " = 905000000 +2400000/s ~900000\nfield 139 type ull\n" \
    "field 140 scope " links " = 1003000000 +2700000/s ~990000\nfield 140 type ull\n" \
    "field 141 scope " links " = 998000000 +2700000/s ~990000\nfield 141 type ull\n"

#define NVLINK_PER_LINK(links, speed) \
    "field 161 scope " links " = 0\nfield 161 type ull\n" \
    "field 162 scope " links " = 0\nfield 162 type ull\n" \
    "field 163 scope " links " = 0\nfield 163 type ull\n" \
    "field 164 scope " links " = " speed "\nfield 164 type ui\n" \
    "field 165 scope " links " = 1\nfield 165 type ui\n" \
    "field 166 scope " links " = 6\nfield 166 type ui\n" \
    "field 167 scope " links " = 0\nfield 167 type ui\n"

#define GPM \
    "gpm 1 = 93.4 ~6\n" \
    "gpm 2 = 84.1 ~12\n" \
    "gpm 3 = 37.9 ~9\n" \
    "gpm 4 = 21.5 ~8\n" \
    "gpm 5 = 46.2 ~20\n" \
    "gpm 6 = 0\n" \
    "gpm 7 = 46.1 ~20\n" \
    "gpm 9 = 0\n" \
    "gpm 10 = 52.8 ~18\n" \
    "gpm 11 = 0\n" \
    "gpm 12 = 6.3 ~3\n" \
    "gpm 13 = 4.4 ~3\n" \
    "gpm 20 = 774.1 ~300\n" \
    "gpm 21 = 1459.4 ~600\n" \
    "gpm 60 = 41870.2 ~15000\n" \
    "gpm 61 = 42115.9 ~15000\n"

static const struct { const char *name, *text; } products[] = {
    {"bare", ""},
    {"h200",
     "name = NVIDIA H200\n" COMMON REMAPPER("5376") HBM_TEMPERATURE HOPPER_FIELDS GPM PCIE("5")
     CLOCKS("1755", "3201", "1530") BOOST("1980", "1500") POWER("700000", "541000", "90000")
     MEMORY("150754820096", "654311424", "97710505984", "52390002688")
     NVLINK("18", "0-17", "6", "26562") NVLINK_PER_LINK("0-17", "26562")
     "nvmlDeviceGetArchitecture = 9\n"
     "nvmlDeviceGetCudaComputeCapability.major = 9\n"
     "nvmlDeviceGetCudaComputeCapability.minor = 0\n"
     "nvmlDeviceGetNumGpuCores = 16896\n"
     "nvmlDeviceGetMemoryBusWidth = 6144\n"},
    {"h100",
     "name = NVIDIA H100 80GB HBM3\n" COMMON REMAPPER("2560") HBM_TEMPERATURE HOPPER_FIELDS GPM PCIE("5")
     CLOCKS("1755", "2619", "1530") BOOST("1980", "1500") POWER("700000", "530000", "90000")
     MEMORY("85520809984", "524288000", "55834574848", "29161947136")
     NVLINK("18", "0-17", "6", "26562") NVLINK_PER_LINK("0-17", "26562")
     "nvmlDeviceGetArchitecture = 9\n"
     "nvmlDeviceGetCudaComputeCapability.major = 9\n"
     "nvmlDeviceGetCudaComputeCapability.minor = 0\n"
     "nvmlDeviceGetNumGpuCores = 16896\n"
     "nvmlDeviceGetMemoryBusWidth = 5120\n"},
    {"a100", /* no GPM, no fabric registration, NVLink 3 */
     "name = NVIDIA A100-SXM4-80GB\n" COMMON REMAPPER("640") HBM_TEMPERATURE PCIE("4")
     CLOCKS("1410", "1593", "1275") BOOST("1410", "1275") POWER("400000", "331000", "60000")
     MEMORY("85899345920", "636485632", "60129542144", "25133318144")
     NVLINK("12", "0-11", "4", "25000")
     "nvmlDeviceGetArchitecture = 7\n"
     "nvmlDeviceGetCudaComputeCapability.major = 8\n"
     "nvmlDeviceGetCudaComputeCapability.minor = 0\n"
     "nvmlDeviceGetSupportedEventTypes = 0x119f\n"},
    {"l4", /* a PCIe card without HBM, NVLink or fans of its own */
     "name = NVIDIA L4\n" COMMON REMAPPER("96") PCIE("4")
     CLOCKS("1920", "6251", "1560") BOOST("2040", "2040") POWER("72000", "66000", "5000")
     MEMORY("24152899584", "500170752", "17179869184", "6472859648")
     "nvmlDeviceGetArchitecture = 8\n"
     "nvmlDeviceGetCudaComputeCapability.major = 8\n"
     "nvmlDeviceGetCudaComputeCapability.minor = 9\n"
     "nvmlDeviceGetMaxMigDeviceCount absent\n"
     "nvmlDeviceGetMigMode.current absent\n"
     "nvmlDeviceGetMigMode.pending absent\n"
     "nvmlDeviceGetSupportedEventTypes = 0x119f\n"},
};

const char *product_text(const char *name) {
    for (unsigned i = 0; i < sizeof products / sizeof *products; i++)
        if (strcmp(products[i].name, name) == 0) return products[i].text;
    return NULL;
}
