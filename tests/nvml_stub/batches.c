/* Calls that answer many values at once: field values, GPM samples, processes, accounting. */
#include "stub.h"

#include <stdlib.h>
#include <string.h>

typedef struct device Device;

union number { double d; unsigned ui; unsigned long ul; unsigned long long ull; long long sll; int si; unsigned short us; };

struct field_value {
    unsigned id, scope;
    int64_t timestamp_us, latency_us;
    unsigned type;
    int code;
    union number value;
};

static int number(const Device *device, const struct value *value, unsigned type, union number *out) {
    uint64_t whole = 0;
    int code = type == 0 ? read_real(device, value, &out->d) : read_whole(device, value, &whole);
    switch (type) {
    case 1: case 5: out->ui = (unsigned)whole; break;
    case 2: case 3: case 4: out->ull = whole; break;
    case 6: out->us = (unsigned short)whole; break;
    default: break;
    }
    return code;
}

/* The sum over the scopes that have a value, as NVML gives for all links together. */
static int total(const Device *device, const struct value *scopes, union number *out) {
    int found = NOT_SUPPORTED;
    out->ull = 0;
    for (unsigned scope = 0; scope < SCOPES; scope++) {
        uint64_t whole;
        if (!scopes[scope].set) continue;
        int code = read_whole(device, &scopes[scope], &whole);
        if (code) return code;
        out->ull += whole;
        found = SUCCESS;
    }
    return found;
}

static void field(const Device *device, struct field_value *out) {
    out->timestamp_us = wall_ms() * 1000;
    out->latency_us = 12;
    out->value.ull = 0;
    if (out->id >= FIELDS) {
        out->code = INVALID_ARGUMENT;
        return;
    }
    const struct value *value = &device->fields[out->id], *scopes = device->scopes[out->id];
    out->type = value->type;
    if (scopes && out->scope < SCOPES && scopes[out->scope].set) value = &scopes[out->scope];
    if (out->scope == UINT32_MAX && device->totals[out->id].set) value = &device->totals[out->id];
    if (value->set || !scopes) out->code = number(device, value, out->type, &out->value);
    else out->code = out->scope == UINT32_MAX ? total(device, scopes, &out->value) : INVALID_ARGUMENT;
}

API int nvmlDeviceGetFieldValues(Device *device, int count, struct field_value *values) {
    int code = enter(device, C_nvmlDeviceGetFieldValues);
    if (code) return code;
    if (count <= 0) return leave(INVALID_ARGUMENT);
    for (int i = 0; i < count; i++) field(device, &values[i]);
    return leave(SUCCESS);
}

/* GPM: a sample is a moment of a device; metrics are read at the later of two. */

struct sample { Device *device; int64_t at_ms; };
struct metric { unsigned id; int code; double value; const char *short_name, *long_name, *unit; };
struct metrics { unsigned version, count; struct sample *first, *second; struct metric metrics[]; };

API int nvmlGpmSampleAlloc(struct sample **out) {
    int code = enter_system(C_nvmlGpmSampleAlloc);
    if (code) return code;
    *out = calloc(1, sizeof **out);
    return leave(SUCCESS);
}

API int nvmlGpmSampleFree(struct sample *sample) {
    int code = enter_system(C_nvmlGpmSampleFree);
    if (code) return code;
    free(sample);
    return leave(SUCCESS);
}

static int take(Device *device, struct sample *sample) {
    if (!sample) return leave(INVALID_ARGUMENT);
    if (!device->has_gpm) return leave(NOT_SUPPORTED);
    *sample = (struct sample){device, wall_ms()};
    return leave(SUCCESS);
}

API int nvmlGpmSampleGet(Device *device, struct sample *sample) {
    int code = enter(device, C_nvmlGpmSampleGet);
    return code ? code : take(device, sample);
}

API int nvmlGpmMigSampleGet(Device *device, unsigned gi, struct sample *sample) {
    int code = enter(device, C_nvmlGpmMigSampleGet);
    if (code) return code;
    for (int mig = 0; mig < MIG_DEVICES; mig++)
        if (device->migs[mig] && device->migs[mig]->present && device->migs[mig]->gi == gi)
            return take(device->migs[mig], sample);
    return leave(INVALID_ARGUMENT);
}

API int nvmlGpmQueryDeviceSupport(Device *device, unsigned out[2]) {
    if (out[0] != 1) return VERSION_MISMATCH;
    int code = enter(device, C_nvmlGpmQueryDeviceSupport);
    if (code) return code;
    out[1] = device->has_gpm;
    return leave(SUCCESS);
}

static void metric(const Device *device, struct metric *out) {
    out->short_name = out->long_name = "";
    out->unit = out->id < 20 ? "%" : "MiB/s";
    out->code = out->id < GPM_METRICS ? read_real(device, &device->gpm[out->id], &out->value) : INVALID_ARGUMENT;
}

API int nvmlGpmMetricsGet(struct metrics *metrics) {
    if (metrics->version != 1) return VERSION_MISMATCH;
    if (!metrics->first || !metrics->second || metrics->first->device != metrics->second->device) return INVALID_ARGUMENT;
    if (metrics->first->at_ms > metrics->second->at_ms || !metrics->second->device) return INVALID_ARGUMENT;
    int code = enter(metrics->second->device, C_nvmlGpmMetricsGet);
    if (code) return code;
    for (unsigned i = 0; i < metrics->count; i++) metric(metrics->second->device, &metrics->metrics[i]);
    return leave(SUCCESS);
}

/* Processes */

struct process_info { unsigned pid; unsigned long long memory; unsigned gi, ci; };
struct process_detail { unsigned pid; unsigned long long memory; unsigned gi, ci; unsigned long long protected_memory; };
struct detail_list { unsigned version, mode, count; struct process_detail *details; };

/* Processes live on the GPU; a MIG device shows those of its instances. */
static bool shown(const Device *device, const struct process *process, unsigned mode) {
    bool here = !device->parent || (process->gi == device->gi && process->ci == device->ci);
    return here && (mode == 3 || (unsigned)process->kind == mode);
}

static const Device *holder(const Device *device) { return device->parent ? device->parent : device; }

static int processes(Device *device, int call, enum kind kind, unsigned *count, struct process_info *out) {
    unsigned found = 0, room = out ? *count : 0;
    int code = enter(device, call);
    if (code) return code;
    const Device *gpu = holder(device);
    for (unsigned i = 0; i < gpu->process_count; i++) {
        const struct process *p = &gpu->processes[i];
        if (!shown(device, p, kind)) continue;
        if (found < room) out[found] = (struct process_info){p->pid, p->memory, p->gi, p->ci};
        found++;
    }
    *count = found;
    return leave(found > room ? INSUFFICIENT_SIZE : SUCCESS);
}

#define PROCESSES_OF(f, kind) \
    API int f(Device *d, unsigned *count, struct process_info *out) { return processes(d, C_##f, kind, count, out); }
PROCESSES_OF(nvmlDeviceGetComputeRunningProcesses_v2, COMPUTE)
PROCESSES_OF(nvmlDeviceGetComputeRunningProcesses_v3, COMPUTE)
PROCESSES_OF(nvmlDeviceGetGraphicsRunningProcesses_v2, GRAPHICS)
PROCESSES_OF(nvmlDeviceGetGraphicsRunningProcesses_v3, GRAPHICS)
PROCESSES_OF(nvmlDeviceGetMPSComputeRunningProcesses_v2, MPS)
PROCESSES_OF(nvmlDeviceGetMPSComputeRunningProcesses_v3, MPS)

API int nvmlDeviceGetRunningProcessDetailList(Device *device, struct detail_list *list) {
    unsigned found = 0, room = list->details ? list->count : 0;
    if (list->version != 0x1000018) return VERSION_MISMATCH;
    int code = enter(device, C_nvmlDeviceGetRunningProcessDetailList);
    if (code) return code;
    const Device *gpu = holder(device);
    for (unsigned i = 0; i < gpu->process_count; i++) {
        const struct process *p = &gpu->processes[i];
        if (!shown(device, p, list->mode)) continue;
        if (found < room) list->details[found] = (struct process_detail){p->pid, p->memory, p->gi, p->ci, UINT64_MAX};
        found++;
    }
    list->count = found;
    return leave(found > room ? INSUFFICIENT_SIZE : SUCCESS);
}

struct usage { unsigned pid; unsigned long long stamp_us; unsigned sm, mem, enc, dec; };
struct usage_v1 { unsigned long long stamp_us; unsigned pid, sm, mem, enc, dec, jpg, ofa; };
struct usage_list { unsigned version, count; unsigned long long last_us; struct usage_v1 *usages; };

static unsigned long long stamp(const struct process *process) {
    return process->stamp_us ? process->stamp_us : (unsigned long long)wall_ms() * 1000;
}

/* Samples newer than `last_us`: into either layout, or counted. */
static int usages(Device *device, int call, unsigned long long last_us, unsigned *count, struct usage *old, struct usage_v1 *new) {
    unsigned found = 0, room = old || new ? *count : 0;
    int code = enter(device, call);
    if (code) return code;
    if (device->parent || (device->migs[0] && device->migs[0]->present)) return leave(NOT_SUPPORTED);
    for (unsigned i = 0; i < device->process_count; i++) {
        const struct process *p = &device->processes[i];
        if (stamp(p) <= last_us) continue;
        if (old && found < room) old[found] = (struct usage){p->pid, stamp(p), p->sm, p->mem, p->enc, p->dec};
        if (new && found < room) new[found] = (struct usage_v1){stamp(p), p->pid, p->sm, p->mem, p->enc, p->dec, 0, 0};
        found++;
    }
    *count = found;
    if (!found) return leave(NOT_FOUND);
    return leave(found > room ? INSUFFICIENT_SIZE : SUCCESS);
}

API int nvmlDeviceGetProcessUtilization(Device *device, struct usage *out, unsigned *count, unsigned long long last_us) {
    return usages(device, C_nvmlDeviceGetProcessUtilization, last_us, count, out, NULL);
}

API int nvmlDeviceGetProcessesUtilizationInfo(Device *device, struct usage_list *list) {
    if (list->version != 0x01000018) return VERSION_MISMATCH;
    return usages(device, C_nvmlDeviceGetProcessesUtilizationInfo, list->last_us, &list->count, NULL, list->usages);
}

struct accounting {
    unsigned gpu, memory;
    unsigned long long maximum_memory, time_ms, start_us;
    unsigned running, reserved[5];
};

API int nvmlDeviceGetAccountingPids(Device *device, unsigned *count, unsigned *pids) {
    unsigned room = pids ? *count : 0;
    int code = enter(device, C_nvmlDeviceGetAccountingPids);
    if (code) return code;
    if (!device->values[V_nvmlDeviceGetAccountingMode].set) return leave(NOT_SUPPORTED);
    *count = device->process_count;
    for (unsigned i = 0; i < device->process_count && i < room; i++) pids[i] = device->processes[i].pid;
    return leave(device->process_count > room ? INSUFFICIENT_SIZE : SUCCESS);
}

API int nvmlDeviceGetAccountingStats(Device *device, unsigned pid, struct accounting *out) {
    int code = enter(device, C_nvmlDeviceGetAccountingStats);
    if (code) return code;
    for (unsigned i = 0; i < device->process_count; i++) {
        const struct process *p = &device->processes[i];
        if (p->pid != pid) continue;
        *out = (struct accounting){.gpu = p->sm, .memory = p->mem, .maximum_memory = p->memory, .running = 1};
        return leave(SUCCESS);
    }
    return leave(NOT_FOUND);
}
