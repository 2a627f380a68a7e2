/* Starting and stopping, versions, the listing of GPUs and MIG devices, and how a handle is found. */
#include "stub.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

typedef struct device Device;

static int initialise(int call) {
    int code = enter_uninitialised(call);
    if (code) return code;
    if (!machine.loaded) return leave(DRIVER_NOT_LOADED);
    if (machine.init_code) return leave(machine.init_code);
    machine.initialised++;
    if (machine.initialised == 1) scenario_list();
    return leave(SUCCESS);
}

API int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return initialise(C_nvmlInitWithFlags);
}

API int nvmlInit_v2(void) { return initialise(C_nvmlInit_v2); }

API int nvmlShutdown(void) {
    int code = enter_system(C_nvmlShutdown);
    if (code) return code;
    machine.initialised--;
    return leave(SUCCESS);
}

API const char *nvmlErrorString(int code) {
    static const char *const texts[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions",
        "Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power", "Driver Not Loaded",
        "Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found", "Function Not Found", "Corrupted infoROM",
        "GPU is lost", "GPU requires reset", "Blocked by Operating System", "Driver/library version mismatch", "In Use",
        "Insufficient Memory", "No data", "vGPU ECC not supported", "Insufficient resources", "Frequency not supported",
        "Argument version mismatch", "Deprecated", "Not Ready", "No GPUs found", "Invalid state",
        "Reset type not supported",
    };
    return code >= 0 && code < (int)(sizeof texts / sizeof *texts) ? texts[code] : "Unknown Error";
}

static int give(int call, const char *text, char *out, unsigned length) {
    int code = enter_system(call);
    if (code) return code;
    if (strlen(text) >= length) return leave(INSUFFICIENT_SIZE);
    strcpy(out, text);
    return leave(SUCCESS);
}

API int nvmlSystemGetDriverVersion(char *out, unsigned length) {
    return give(C_nvmlSystemGetDriverVersion, machine.driver, out, length);
}

API int nvmlSystemGetNVMLVersion(char *out, unsigned length) {
    return give(C_nvmlSystemGetNVMLVersion, machine.nvml, out, length);
}

static int cuda(int call, int *out) {
    int code = enter_system(call);
    if (code) return code;
    *out = machine.cuda;
    return leave(SUCCESS);
}

API int nvmlSystemGetCudaDriverVersion(int *out) { return cuda(C_nvmlSystemGetCudaDriverVersion, out); }
API int nvmlSystemGetCudaDriverVersion_v2(int *out) { return cuda(C_nvmlSystemGetCudaDriverVersion_v2, out); }

API int nvmlSystemGetProcessName(unsigned pid, char *out, unsigned length) {
    int code = enter_system(C_nvmlSystemGetProcessName);
    if (code) return code;
    for (unsigned i = 0; i < machine.name_count; i++)
        if (machine.names[i].pid == pid) return snprintf(out, length, "%s", machine.names[i].name), leave(SUCCESS);
    return leave(NOT_FOUND);
}

API int nvmlDeviceGetCount_v2(unsigned *out) {
    int code = enter_system(C_nvmlDeviceGetCount_v2);
    if (code) return code;
    *out = 0;
    for (unsigned slot = 0; slot < GPUS; slot++) *out += machine.gpus[slot].listed;
    return leave(SUCCESS);
}

/* Place in the listing: by the scenario's index, then by slot, without holes. */
static unsigned place(const Device *device) {
    unsigned before = 0;
    for (const Device *other = machine.gpus; other < machine.gpus + GPUS; other++)
        before += other->listed && (other->index < device->index || (other->index == device->index && other->slot < device->slot));
    return before;
}

static int found(Device *device, Device **out) {
    if (!device) return leave(NOT_FOUND);
    const Device *gpu = device->parent ? device->parent : device;
    if (gpu->lost || gpu->vanished || !gpu->present) return leave(GPU_IS_LOST);
    *out = device;
    return leave(SUCCESS);
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **out) {
    int code = enter_system(C_nvmlDeviceGetHandleByIndex_v2);
    if (code) return code;
    for (unsigned slot = 0; slot < GPUS; slot++)
        if (machine.gpus[slot].listed && place(&machine.gpus[slot]) == index) return found(&machine.gpus[slot], out);
    return leave(INVALID_ARGUMENT);
}

API int nvmlDeviceGetIndex(Device *device, unsigned *out) {
    int code = enter(device, C_nvmlDeviceGetIndex);
    if (code) return code;
    *out = device->parent ? device->mig - 1 : place(device);
    return leave(SUCCESS);
}

API int nvmlDeviceGetMinorNumber(Device *device, unsigned *out) {
    int code = enter(device, C_nvmlDeviceGetMinorNumber);
    if (code) return code;
    if (device->parent) return leave(NOT_SUPPORTED);
    *out = device->minor;
    return leave(SUCCESS);
}

static Device *by_text(enum text text, const char *wanted) {
    for (Device *gpu = machine.gpus; gpu < machine.gpus + GPUS; gpu++) {
        if (gpu->listed && strcmp(gpu->text[text], wanted) == 0) return gpu;
        for (int mig = 0; mig < MIG_DEVICES && text == UUID; mig++)
            if (gpu->migs[mig] && gpu->migs[mig]->present && strcmp(gpu->migs[mig]->text[UUID], wanted) == 0)
                return gpu->migs[mig];
    }
    return NULL;
}

API int nvmlDeviceGetHandleByUUID(const char *uuid, Device **out) {
    int code = enter_system(C_nvmlDeviceGetHandleByUUID);
    return code ? code : found(by_text(UUID, uuid), out);
}

API int nvmlDeviceGetHandleBySerial(const char *serial, Device **out) {
    int code = enter_system(C_nvmlDeviceGetHandleBySerial);
    return code ? code : found(by_text(SERIAL, serial), out);
}

/* Accepts a domain of any width and a missing function, as NVML does. */
API int nvmlDeviceGetHandleByPciBusId_v2(const char *address, Device **out) {
    unsigned domain, bus, device;
    int code = enter_system(C_nvmlDeviceGetHandleByPciBusId_v2);
    if (code) return code;
    if (sscanf(address, "%x:%x:%x", &domain, &bus, &device) != 3) return leave(INVALID_ARGUMENT);
    for (Device *gpu = machine.gpus; gpu < machine.gpus + GPUS; gpu++)
        if (gpu->listed && gpu->domain == domain && gpu->bus == bus && gpu->device == device) return found(gpu, out);
    return leave(NOT_FOUND);
}

/* MIG */

API int nvmlDeviceIsMigDeviceHandle(Device *device, unsigned *out) {
    int code = enter(device, C_nvmlDeviceIsMigDeviceHandle);
    if (code) return code;
    *out = device->parent != NULL;
    return leave(SUCCESS);
}

API int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **out) {
    int code = enter(device, C_nvmlDeviceGetMigDeviceHandleByIndex);
    if (code) return code;
    if (index >= MIG_DEVICES) return leave(INVALID_ARGUMENT);
    if (!device->migs[index] || !device->migs[index]->present) return leave(NOT_FOUND);
    *out = device->migs[index];
    return leave(SUCCESS);
}

API int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device *device, Device **out) {
    int code = enter(device, C_nvmlDeviceGetDeviceHandleFromMigDeviceHandle);
    if (code) return code;
    if (!device->parent) return leave(INVALID_ARGUMENT);
    *out = device->parent;
    return leave(SUCCESS);
}

static int of_mig(Device *device, int call, const unsigned *value, unsigned *out) {
    int code = enter(device, call);
    if (code) return code;
    if (!device->parent) return leave(NOT_SUPPORTED);
    *out = *value;
    return leave(SUCCESS);
}

API int nvmlDeviceGetGpuInstanceId(Device *device, unsigned *out) {
    return of_mig(device, C_nvmlDeviceGetGpuInstanceId, &device->gi, out);
}

API int nvmlDeviceGetComputeInstanceId(Device *device, unsigned *out) {
    return of_mig(device, C_nvmlDeviceGetComputeInstanceId, &device->ci, out);
}

struct attributes { unsigned multiprocessors, shared[5], gpu_slices, compute_slices; unsigned long long memory_mib; };

API int nvmlDeviceGetAttributes_v2(Device *device, struct attributes *out) {
    int code = enter(device, C_nvmlDeviceGetAttributes_v2);
    if (code) return code;
    if (!device->parent) return leave(NOT_SUPPORTED);
    *out = (struct attributes){.multiprocessors = device->slices * 16, .shared = {1}};
    out->gpu_slices = out->compute_slices = device->slices;
    out->memory_mib = device->values[V_nvmlDeviceGetMemoryInfo_v2_total].whole >> 20;
    return leave(SUCCESS);
}

/* NVML's profile ids of whole GPU instances, by slices. */
static unsigned profile_id(unsigned slices) {
    static const unsigned ids[8] = {19, 19, 14, 9, 5, 0, 0, 0};
    return ids[slices & 7];
}

API int nvmlDeviceGetGpuInstanceById(Device *device, unsigned gi, Device **out) {
    int code = enter(device, C_nvmlDeviceGetGpuInstanceById);
    if (code) return code;
    for (int mig = 0; mig < MIG_DEVICES; mig++)
        if (device->migs[mig] && device->migs[mig]->present && device->migs[mig]->gi == gi)
            return *out = device->migs[mig], leave(SUCCESS);
    return leave(NOT_FOUND);
}

struct instance { Device *device; unsigned id, profile, start, size; };

API int nvmlGpuInstanceGetInfo(Device *instance, struct instance *out) {
    int code = enter(instance, C_nvmlGpuInstanceGetInfo);
    if (code) return code;
    *out = (struct instance){instance->parent, instance->gi, profile_id(instance->slices), instance->mig - 1, instance->slices};
    return leave(SUCCESS);
}

struct profile { unsigned version, id, p2p, slices, instances, engines[6]; unsigned long long memory_mib; char name[96]; };

/* Knows the profiles that the GPU's MIG devices have. `profile` is NVML's enum: 0 to 3 are 1 to 4 slices, 4 is 7. */
API int nvmlDeviceGetGpuInstanceProfileInfoV(Device *device, unsigned profile, struct profile *out) {
    static const unsigned slices[] = {1, 2, 3, 4, 7};
    if (out->version != 0x02000098) return VERSION_MISMATCH;
    int code = enter(device, C_nvmlDeviceGetGpuInstanceProfileInfoV);
    if (code) return code;
    for (int mig = 0; mig < MIG_DEVICES; mig++) {
        const Device *made = device->migs[mig];
        if (profile > 4 || !made || !made->present || made->slices != slices[profile]) continue;
        *out = (struct profile){.version = out->version, .id = profile_id(made->slices), .slices = made->slices};
        out->instances = 7 / made->slices;
        out->engines[0] = made->slices * 16;
        out->memory_mib = made->values[V_nvmlDeviceGetMemoryInfo_v2_total].whole >> 20;
        snprintf(out->name, sizeof out->name, "MIG %s", made->profile);
        return leave(SUCCESS);
    }
    return leave(NOT_SUPPORTED);
}
