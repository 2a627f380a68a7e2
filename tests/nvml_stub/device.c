/* What one GPU answers about itself: texts, single values, and the small structs made of them. */
#include "stub.h"

#include <stdio.h>
#include <string.h>

typedef struct device Device;

static int whole(const Device *device, int value, uint64_t *out) {
    return read_whole(device, &device->values[value], out);
}

static int give_u32(Device *device, int call, int value, unsigned *out) {
    uint64_t found;
    int code = enter(device, call);
    if (code) return code;
    code = whole(device, value, &found);
    if (!code) *out = (unsigned)found;
    return leave(code);
}

static int give_u64(Device *device, int call, int value, unsigned long long *out) {
    uint64_t found;
    int code = enter(device, call);
    if (code) return code;
    code = whole(device, value, &found);
    if (!code) *out = found;
    return leave(code);
}

/* Several 32-bit values of consecutive names into consecutive places, all or none. */
static int give_many(Device *device, int call, int value, int count, unsigned **places) {
    int code = enter(device, call);
    if (code) return code;
    for (int i = 0; i < count && !code; i++) {
        uint64_t found;
        code = whole(device, value + i, &found);
        if (!code) *places[i] = (unsigned)found;
    }
    return leave(code);
}

/* The value at `index` of `count` consecutive names. */
static int give_at(Device *device, int call, int value, unsigned index, unsigned count, unsigned *out) {
    return index < count ? give_u32(device, call, value + (int)index, out) : INVALID_ARGUMENT;
}

static bool mig_parent(const Device *device) {
    for (int mig = 0; mig < MIG_DEVICES; mig++)
        if (device->migs[mig] && device->migs[mig]->present) return true;
    return false;
}

/* Utilisation of a whole GPU is not supported while it is cut into MIG devices. */
static int give_utilization(Device *device, int call, int value, unsigned *out, unsigned *period_us) {
    uint64_t found;
    int code = enter(device, call);
    if (code) return code;
    code = mig_parent(device) ? NOT_SUPPORTED : whole(device, value, &found);
    if (!code) *out = (unsigned)found, *period_us = 167000;
    return leave(code);
}

static int copy(const char *text, char *out, unsigned length) {
    if (!*text) return NOT_SUPPORTED;
    if (strlen(text) >= length) return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return SUCCESS;
}

static int give_text(Device *device, int call, enum text text, char *out, unsigned length) {
    int code = enter(device, call);
    return code ? code : leave(copy(device->text[text], out, length));
}

#define TEXT(f, text) \
    API int f(Device *d, char *out, unsigned length) { return give_text(d, C_##f, text, out, length); }
TEXT(nvmlDeviceGetUUID, UUID)
TEXT(nvmlDeviceGetSerial, SERIAL)
TEXT(nvmlDeviceGetName, NAME)
TEXT(nvmlDeviceGetVbiosVersion, VBIOS)
TEXT(nvmlDeviceGetBoardPartNumber, BOARD_PART)
TEXT(nvmlDeviceGetInforomImageVersion, INFOROM)

API int nvmlDeviceGetGspFirmwareVersion(Device *device, char *out) {
    int code = enter(device, C_nvmlDeviceGetGspFirmwareVersion);
    return code ? code : leave(copy(machine.driver, out, 64));
}

#define U32(f) \
    API int f(Device *d, unsigned *out) { return give_u32(d, C_##f, V_##f, out); }
U32(nvmlDeviceGetArchitecture)
U32(nvmlDeviceGetBrand)
U32(nvmlDeviceGetPersistenceMode)
U32(nvmlDeviceGetComputeMode)
U32(nvmlDeviceGetDisplayMode)
U32(nvmlDeviceGetDisplayActive)
U32(nvmlDeviceGetVirtualizationMode)
U32(nvmlDeviceGetModuleId)
U32(nvmlDeviceGetNumaNodeId)
U32(nvmlDeviceGetNumGpuCores)
U32(nvmlDeviceGetMemoryBusWidth)
U32(nvmlDeviceGetBusType)
U32(nvmlDeviceGetIrqNum)
U32(nvmlDeviceGetBoardId)
U32(nvmlDeviceGetMultiGpuBoard)
U32(nvmlDeviceGetPowerSource)
U32(nvmlDeviceGetAdaptiveClockInfoStatus)
U32(nvmlDeviceGetPerformanceState)
U32(nvmlDeviceGetPowerState)
U32(nvmlDeviceGetNumFans)
U32(nvmlDeviceGetFanSpeed)
U32(nvmlDeviceGetPowerUsage)
U32(nvmlDeviceGetEnforcedPowerLimit)
U32(nvmlDeviceGetPowerManagementLimit)
U32(nvmlDeviceGetPowerManagementDefaultLimit)
U32(nvmlDeviceGetPowerManagementMode)
U32(nvmlDeviceGetCurrPcieLinkGeneration)
U32(nvmlDeviceGetCurrPcieLinkWidth)
U32(nvmlDeviceGetMaxPcieLinkGeneration)
U32(nvmlDeviceGetMaxPcieLinkWidth)
U32(nvmlDeviceGetGpuMaxPcieLinkGeneration)
U32(nvmlDeviceGetPcieLinkMaxSpeed)
U32(nvmlDeviceGetPcieSpeed)
U32(nvmlDeviceGetPcieReplayCounter)
U32(nvmlDeviceGetDefaultEccMode)
U32(nvmlDeviceGetRetiredPagesPendingStatus)
U32(nvmlDeviceGetMaxMigDeviceCount)
U32(nvmlDeviceGetAccountingMode)
U32(nvmlDeviceGetAccountingBufferSize)

#define U64(f, value) \
    API int f(Device *d, unsigned long long *out) { return give_u64(d, C_##f, value, out); }
U64(nvmlDeviceGetTotalEnergyConsumption, V_nvmlDeviceGetTotalEnergyConsumption)
U64(nvmlDeviceGetSupportedEventTypes, V_nvmlDeviceGetSupportedEventTypes)
U64(nvmlDeviceGetCurrentClocksEventReasons, V_nvmlDeviceGetCurrentClocksEventReasons)
U64(nvmlDeviceGetCurrentClocksThrottleReasons, V_nvmlDeviceGetCurrentClocksEventReasons)
U64(nvmlDeviceGetSupportedClocksEventReasons, V_nvmlDeviceGetSupportedClocksEventReasons)
U64(nvmlDeviceGetSupportedClocksThrottleReasons, V_nvmlDeviceGetSupportedClocksEventReasons)

#define PAIR(f, value) \
    API int f(Device *d, unsigned *a, unsigned *b) { return give_many(d, C_##f, value, 2, (unsigned *[]){a, b}); }
PAIR(nvmlDeviceGetCudaComputeCapability, V_nvmlDeviceGetCudaComputeCapability_major)
PAIR(nvmlDeviceGetGspFirmwareMode, V_nvmlDeviceGetGspFirmwareMode_enabled)
PAIR(nvmlDeviceGetPowerManagementLimitConstraints, V_nvmlDeviceGetPowerManagementLimitConstraints_minimum)
PAIR(nvmlDeviceGetEccMode, V_nvmlDeviceGetEccMode_current)
PAIR(nvmlDeviceGetMigMode, V_nvmlDeviceGetMigMode_current)

#define BY(f, count) \
    API int f(Device *d, unsigned index, unsigned *out) { return give_at(d, C_##f, V_##f##_FIRST, index, count, out); }
enum {
    V_nvmlDeviceGetClockInfo_FIRST = V_nvmlDeviceGetClockInfo_GRAPHICS,
    V_nvmlDeviceGetMaxClockInfo_FIRST = V_nvmlDeviceGetMaxClockInfo_GRAPHICS,
    V_nvmlDeviceGetMaxCustomerBoostClock_FIRST = V_nvmlDeviceGetMaxCustomerBoostClock_GRAPHICS,
    V_nvmlDeviceGetApplicationsClock_FIRST = V_nvmlDeviceGetApplicationsClock_GRAPHICS,
    V_nvmlDeviceGetDefaultApplicationsClock_FIRST = V_nvmlDeviceGetDefaultApplicationsClock_GRAPHICS,
    V_nvmlDeviceGetTemperature_FIRST = V_nvmlDeviceGetTemperatureV_GPU,
    V_nvmlDeviceGetTemperatureThreshold_FIRST = V_nvmlDeviceGetTemperatureThreshold_SHUTDOWN,
    V_nvmlDeviceGetFanSpeed_v2_FIRST = V_nvmlDeviceGetFanSpeed_v2,
    V_nvmlDeviceGetTargetFanSpeed_FIRST = V_nvmlDeviceGetTargetFanSpeed,
    V_nvmlDeviceGetPcieThroughput_FIRST = V_nvmlDeviceGetPcieThroughput_TX_BYTES,
    V_nvmlDeviceGetNvLinkState_FIRST = V_nvmlDeviceGetNvLinkState,
    V_nvmlDeviceGetNvLinkVersion_FIRST = V_nvmlDeviceGetNvLinkVersion,
    V_nvmlDeviceGetNvLinkRemoteDeviceType_FIRST = V_nvmlDeviceGetNvLinkRemoteDeviceType,
};
BY(nvmlDeviceGetClockInfo, 4)
BY(nvmlDeviceGetMaxClockInfo, 4)
BY(nvmlDeviceGetMaxCustomerBoostClock, 4)
BY(nvmlDeviceGetApplicationsClock, 4)
BY(nvmlDeviceGetDefaultApplicationsClock, 4)
BY(nvmlDeviceGetTemperature, 1)
BY(nvmlDeviceGetTemperatureThreshold, 8)
BY(nvmlDeviceGetFanSpeed_v2, 8)
BY(nvmlDeviceGetTargetFanSpeed, 8)
BY(nvmlDeviceGetPcieThroughput, 2)
BY(nvmlDeviceGetNvLinkState, 36)
BY(nvmlDeviceGetNvLinkVersion, 36)
BY(nvmlDeviceGetNvLinkRemoteDeviceType, 36)

API int nvmlDeviceGetClock(Device *device, unsigned type, unsigned id, unsigned *out) {
    if (type > 3 || id > 3) return INVALID_ARGUMENT;
    return give_u32(device, C_nvmlDeviceGetClock, V_nvmlDeviceGetClock_GRAPHICS_CURRENT + (int)(type * 4 + id), out);
}

API int nvmlDeviceGetNvLinkErrorCounter(Device *device, unsigned link, unsigned counter, unsigned long long *out) {
    if (link > 35 || counter > 3) return INVALID_ARGUMENT;
    int value = V_nvmlDeviceGetNvLinkErrorCounter_replay + (int)(counter * 36 + link);
    return give_u64(device, C_nvmlDeviceGetNvLinkErrorCounter, value, out);
}

API int nvmlDeviceGetNvLinkCapability(Device *device, unsigned link, unsigned capability, unsigned *out) {
    if (link > 35 || capability > 5) return INVALID_ARGUMENT;
    return give_u32(device, C_nvmlDeviceGetNvLinkCapability, V_nvmlDeviceGetNvLinkCapability_p2p + (int)link, out);
}

API int nvmlDeviceGetTotalEccErrors(Device *device, unsigned error, unsigned counter, unsigned long long *out) {
    if (error > 1 || counter > 1) return INVALID_ARGUMENT;
    int value = V_nvmlDeviceGetTotalEccErrors_CORRECTED_VOLATILE + (int)(error * 2 + counter);
    return give_u64(device, C_nvmlDeviceGetTotalEccErrors, value, out);
}

static int memory_errors(unsigned error, unsigned counter, unsigned location) {
    return V_nvmlDeviceGetMemoryErrorCounter_corrected_volatile + (int)((error * 2 + counter) * 8 + location);
}

API int nvmlDeviceGetMemoryErrorCounter(
    Device *device, unsigned error, unsigned counter, unsigned location, unsigned long long *out) {
    if (error > 1 || counter > 1 || location > 7) return INVALID_ARGUMENT;
    return give_u64(device, C_nvmlDeviceGetMemoryErrorCounter, memory_errors(error, counter, location), out);
}

/* L1, L2, device memory, register file. */
API int nvmlDeviceGetDetailedEccErrors(Device *device, unsigned error, unsigned counter, unsigned long long out[4]) {
    if (error > 1 || counter > 1) return INVALID_ARGUMENT;
    int code = enter(device, C_nvmlDeviceGetDetailedEccErrors);
    if (code) return code;
    for (unsigned location = 0; location < 4 && !code; location++) {
        uint64_t found = 0;
        code = whole(device, memory_errors(error, counter, location), &found);
        out[location] = found;
    }
    return leave(code);
}

#define UTILIZATION(f) \
    API int f(Device *d, unsigned *out, unsigned *us) { return give_utilization(d, C_##f, V_##f, out, us); }
UTILIZATION(nvmlDeviceGetEncoderUtilization)
UTILIZATION(nvmlDeviceGetDecoderUtilization)
UTILIZATION(nvmlDeviceGetJpgUtilization)
UTILIZATION(nvmlDeviceGetOfaUtilization)

API int nvmlDeviceGetUtilizationRates(Device *device, unsigned out[2]) {
    uint64_t gpu, memory;
    int code = enter(device, C_nvmlDeviceGetUtilizationRates);
    if (code) return code;
    code = mig_parent(device) ? NOT_SUPPORTED : whole(device, V_nvmlDeviceGetUtilizationRates_gpu, &gpu);
    if (!code) code = whole(device, V_nvmlDeviceGetUtilizationRates_memory, &memory);
    if (!code) out[0] = (unsigned)gpu, out[1] = (unsigned)memory;
    return leave(code);
}

struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };

static int memory(const Device *device, struct memory_v2 *out) {
    unsigned long long *places[] = {&out->total, &out->reserved, &out->free, &out->used};
    int code = SUCCESS;
    for (int i = 0; i < 4 && !code; i++) {
        uint64_t found = 0;
        code = whole(device, V_nvmlDeviceGetMemoryInfo_v2_total + i, &found);
        *places[i] = found;
    }
    return code;
}

API int nvmlDeviceGetMemoryInfo_v2(Device *device, struct memory_v2 *out) {
    if (out->version != 0x02000028) return VERSION_MISMATCH;
    int code = enter(device, C_nvmlDeviceGetMemoryInfo_v2);
    return code ? code : leave(memory(device, out));
}

/* The first version counts what is reserved as used. */
API int nvmlDeviceGetMemoryInfo(Device *device, struct memory *out) {
    struct memory_v2 found;
    int code = enter(device, C_nvmlDeviceGetMemoryInfo);
    if (code) return code;
    code = memory(device, &found);
    if (!code) *out = (struct memory){found.total, found.free, found.used + found.reserved};
    return leave(code);
}

API int nvmlDeviceGetBAR1MemoryInfo(Device *device, unsigned long long out[3]) {
    int code = enter(device, C_nvmlDeviceGetBAR1MemoryInfo);
    if (code) return code;
    for (int i = 0; i < 3 && !code; i++) {
        uint64_t found = 0;
        code = whole(device, V_nvmlDeviceGetBAR1MemoryInfo_bar1Total + i, &found);
        out[i] = found;
    }
    return leave(code);
}

/* Versioned structs of a version and 32-bit values: {version, skipped inputs, outputs}. */
static int give_versioned(Device *device, int call, int value, unsigned version, unsigned *out, int inputs, int count) {
    unsigned *places[4];
    if (out[0] != version) return VERSION_MISMATCH;
    for (int i = 0; i < count; i++) places[i] = out + 1 + inputs + i;
    return give_many(device, call, value, count, places);
}

#define VERSIONED(f, value, version, count) \
    API int f(Device *d, unsigned *out) { return give_versioned(d, C_##f, value, version, out, 0, count); }
VERSIONED(nvmlDeviceGetMarginTemperature, V_nvmlDeviceGetMarginTemperature, 0x1000008, 1)
VERSIONED(nvmlDeviceGetAddressingMode, V_nvmlDeviceGetAddressingMode, 0x1000008, 1)
VERSIONED(nvmlDeviceGetUnrepairableMemoryFlag_v1, V_nvmlDeviceGetUnrepairableMemoryFlag_v1, 0x1000008, 1)
VERSIONED(nvmlDeviceGetRepairStatus, V_nvmlDeviceGetRepairStatus_channel, 0x100000c, 2)

API int nvmlDeviceGetTemperatureV(Device *device, unsigned *out) {
    if (out[0] == 0x100000c && out[1] != 0) return INVALID_ARGUMENT;
    return give_versioned(device, C_nvmlDeviceGetTemperatureV, V_nvmlDeviceGetTemperatureV_GPU, 0x100000c, out, 1, 1);
}

API int nvmlDeviceGetFanSpeedRPM(Device *device, unsigned *out) {
    if (out[0] == 0x100000c && out[1] > 7) return INVALID_ARGUMENT;
    int value = V_nvmlDeviceGetFanSpeedRPM + (int)out[1];
    return give_versioned(device, C_nvmlDeviceGetFanSpeedRPM, value, 0x100000c, out, 1, 1);
}

API int nvmlDeviceGetRowRemapperHistogram(Device *device, unsigned out[5]) {
    unsigned *places[] = {out, out + 1, out + 2, out + 3, out + 4};
    return give_many(device, C_nvmlDeviceGetRowRemapperHistogram, V_nvmlDeviceGetRowRemapperHistogram_max, 5, places);
}

API int nvmlDeviceGetRemappedRows(Device *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    unsigned *places[] = {corrected, uncorrected, pending, failed};
    return give_many(device, C_nvmlDeviceGetRemappedRows, V_nvmlDeviceGetRemappedRows_corrected, 4, places);
}

struct sram { unsigned version; unsigned long long counts[11]; unsigned exceeded; };

API int nvmlDeviceGetSramEccErrorStatus(Device *device, struct sram *out) {
    uint64_t found = 0;
    if (out->version != 0x1000068) return VERSION_MISMATCH;
    int code = enter(device, C_nvmlDeviceGetSramEccErrorStatus);
    if (code) return code;
    for (int i = 0; i < 11 && !code; i++) {
        code = whole(device, V_nvmlDeviceGetSramEccErrorStatus_aggregateUncParity + i, &found);
        out->counts[i] = found;
    }
    if (!code) code = whole(device, V_nvmlDeviceGetSramEccErrorStatus_bThresholdExceeded, &found);
    out->exceeded = (unsigned)found;
    return leave(code);
}

API int nvmlDeviceGetViolationStatus(Device *device, unsigned policy, unsigned long long out[2]) {
    uint64_t found;
    if (policy > 11) return INVALID_ARGUMENT;
    int code = enter(device, C_nvmlDeviceGetViolationStatus);
    if (code) return code;
    code = whole(device, V_nvmlDeviceGetViolationStatus_POWER + (int)policy, &found);
    if (!code) out[0] = (unsigned long long)wall_ms() * 1000, out[1] = found;
    return leave(code);
}

static int pages(Device *device, int call, unsigned cause, unsigned *count, unsigned long long *addresses, unsigned long long *stamps) {
    unsigned found = 0, room = *count;
    int code = enter(device, call);
    if (code) return code;
    if (!device->values[V_nvmlDeviceGetRetiredPagesPendingStatus].set) return leave(NOT_SUPPORTED);
    for (unsigned i = 0; i < device->page_count; i++) {
        if (device->pages[i].cause != cause) continue;
        if (addresses && found < room) addresses[found] = device->pages[i].address;
        if (stamps && found < room) stamps[found] = device->pages[i].stamp_us;
        found++;
    }
    *count = found;
    return leave(found > (addresses ? room : 0) ? INSUFFICIENT_SIZE : SUCCESS);
}

API int nvmlDeviceGetRetiredPages(Device *device, unsigned cause, unsigned *count, unsigned long long *addresses) {
    return pages(device, C_nvmlDeviceGetRetiredPages, cause, count, addresses, NULL);
}

API int nvmlDeviceGetRetiredPages_v2(
    Device *device, unsigned cause, unsigned *count, unsigned long long *addresses, unsigned long long *stamps) {
    return pages(device, C_nvmlDeviceGetRetiredPages_v2, cause, count, addresses, stamps);
}

struct pci {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

static void put_pci(unsigned domain, unsigned bus, unsigned device, struct pci *out) {
    *out = (struct pci){.domain = domain, .bus = bus, .device = device, .device_id = 0x233510de, .subsystem_id = 0x18be10de};
    snprintf(out->legacy, sizeof out->legacy, "%04X:%02X:%02X.0", domain & 0xffff, bus & 0xff, device & 0xff);
    snprintf(out->bus_id, sizeof out->bus_id, "%08X:%02X:%02X.0", domain, bus, device);
}

API int nvmlDeviceGetPciInfo_v3(Device *device, struct pci *out) {
    int code = enter(device, C_nvmlDeviceGetPciInfo_v3);
    if (code) return code;
    const Device *whole_gpu = device->parent ? device->parent : device;
    put_pci(whole_gpu->domain, whole_gpu->bus, whole_gpu->device, out);
    return leave(SUCCESS);
}

/* Every link of the first 18 ends at one of four switches. */
API int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device *device, unsigned link, struct pci *out) {
    uint64_t type;
    if (link > 35) return INVALID_ARGUMENT;
    int code = enter(device, C_nvmlDeviceGetNvLinkRemotePciInfo_v2);
    if (code) return code;
    code = whole(device, V_nvmlDeviceGetNvLinkRemoteDeviceType + (int)link, &type);
    if (!code) put_pci(0, 5 + link % 4, 0, out);
    return leave(code);
}

/* Where the GPU stands in the NVLink fabric: the same facts in four layouts. */

struct fabric { unsigned char cluster[16]; int status; unsigned clique, state; };
struct fabric_v2 { unsigned version; struct fabric head; unsigned mask; unsigned char summary; };
struct clique { unsigned char type; unsigned id; };
struct fabric_v4 {
    unsigned char cluster[16];
    int status;
    struct clique cliques[64];
    unsigned clique_count;
    unsigned char state;
    unsigned mask;
    unsigned char summary;
};

static int fabric(Device *device, int call, struct fabric_v2 *out) {
    unsigned summary = 0, *status = (unsigned *)&out->head.status;
    unsigned *places[] = {&out->head.state, status, &out->head.clique, &out->mask, &summary};
    int code = give_many(device, call, V_nvmlDeviceGetGpuFabricInfoV_state, 5, places);
    memset(out->head.cluster, 0x5a, sizeof out->head.cluster);
    out->summary = (unsigned char)summary;
    return code;
}

API int nvmlDeviceGetGpuFabricInfo(Device *device, struct fabric *out) {
    struct fabric_v2 found = {0};
    int code = fabric(device, C_nvmlDeviceGetGpuFabricInfo, &found);
    if (!code) *out = found.head;
    return code;
}

API int nvmlDeviceGetGpuFabricInfoV(Device *device, struct fabric_v2 *out) {
    struct fabric_v2 found = {.version = out->version};
    if (out->version != 0x02000024 && out->version != 0x03000028) return VERSION_MISMATCH;
    int code = fabric(device, C_nvmlDeviceGetGpuFabricInfoV, &found);
    if (!code) memcpy(out, &found, out->version & 0xffffff);
    return code;
}

API int nvmlDeviceGetGpuFabricInfo_v4(Device *device, struct fabric_v4 *out) {
    struct fabric_v2 found = {0};
    int code = fabric(device, C_nvmlDeviceGetGpuFabricInfo_v4, &found);
    if (code) return code;
    *out = (struct fabric_v4){.status = found.head.status, .clique_count = 1, .mask = found.mask, .summary = found.summary};
    memcpy(out->cluster, found.head.cluster, sizeof out->cluster);
    out->cliques[0].id = found.head.clique;
    out->state = (unsigned char)found.head.state;
    return SUCCESS;
}

/* Where the GPU sits in a rack: for systems that have a chassis serial number. */

struct platform { unsigned version; char ib_guid[16], chassis[16]; unsigned char places[5]; };

API int nvmlDeviceGetPlatformInfo(Device *device, struct platform *out) {
    if (out->version != 0x200002c) return VERSION_MISMATCH;
    int code = enter(device, C_nvmlDeviceGetPlatformInfo);
    if (code) return code;
    if (!*device->text[CHASSIS]) return leave(NOT_SUPPORTED);
    memcpy(out->chassis, device->text[CHASSIS], sizeof out->chassis);
    for (int i = 0; i < 5 && !code; i++) {
        uint64_t found = 0;
        code = whole(device, V_nvmlDeviceGetPlatformInfo_slotNumber + i, &found);
        out->places[i] = (unsigned char)found;
    }
    return leave(code);
}
