/* Event sets: each scripted event reaches each set that has registered its type, once and in order. */
#define _GNU_SOURCE
#include "stub.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

typedef struct device Device;

struct event_set {
    uint64_t types[GPUS];
    uint64_t last_serial;
    int64_t made_ms;
    int changes; /* inotify on the folder of the scenario */
};

struct event_data { Device *device; unsigned long long type, data; unsigned gi, ci; };

static int watch(void) {
    char folder[4096];
    strncpy(folder, scenario_path(), sizeof folder - 1);
    folder[sizeof folder - 1] = 0;
    char *slash = strrchr(folder, '/');
    if (slash) *slash = 0;
    int changes = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    inotify_add_watch(changes, slash ? folder : ".", IN_MOVED_TO | IN_CLOSE_WRITE);
    return changes;
}

API int nvmlEventSetCreate(struct event_set **out) {
    int code = enter_system(C_nvmlEventSetCreate);
    if (code) return code;
    *out = calloc(1, sizeof **out);
    (*out)->made_ms = wall_ms();
    (*out)->changes = watch();
    return leave(SUCCESS);
}

API int nvmlEventSetFree(struct event_set *set) {
    int code = enter_system(C_nvmlEventSetFree);
    if (code) return code;
    close(set->changes);
    free(set);
    return leave(SUCCESS);
}

API int nvmlDeviceRegisterEvents(Device *device, unsigned long long types, struct event_set *set) {
    uint64_t supported = 0;
    int code = enter(device, C_nvmlDeviceRegisterEvents);
    if (code) return code;
    code = read_whole(device, &device->values[V_nvmlDeviceGetSupportedEventTypes], &supported);
    if (code) return leave(code);
    if (types & ~supported) return leave(NOT_SUPPORTED);
    set->types[device->slot] |= types;
    return leave(SUCCESS);
}

static const struct event *next_event(const struct event_set *set) {
    const struct event *next = NULL;
    for (unsigned i = 0; i < machine.event_count; i++) {
        const struct event *event = &machine.events[i];
        if (event->serial <= set->last_serial || !(set->types[event->slot] & event->type)) continue;
        if (event->at_ms && (event->at_ms > wall_ms() || event->at_ms < set->made_ms)) continue;
        if (!next || event->serial < next->serial) next = event;
    }
    return next;
}

static bool lost(const struct event_set *set) {
    for (unsigned slot = 0; slot < GPUS; slot++)
        if (set->types[slot] && (machine.gpus[slot].lost || machine.gpus[slot].vanished)) return true;
    return false;
}

/* Looks once: an event, a lost GPU, or TIMEOUT. */
static int look(int call, struct event_set *set, struct event_data *out) {
    int code = enter_system(call);
    if (code) return code;
    const struct event *event = next_event(set);
    if (event) {
        set->last_serial = event->serial;
        *out = (struct event_data){&machine.gpus[event->slot], event->type, event->data, event->gi, event->ci};
        return leave(SUCCESS);
    }
    return leave(lost(set) ? GPU_IS_LOST : TIMEOUT);
}

/* Until the next scripted instant, at most `left_ms`. */
static int span(const struct event_set *set, int64_t left_ms) {
    lock();
    for (unsigned i = 0; i < machine.event_count; i++) {
        int64_t in_ms = machine.events[i].at_ms - wall_ms() + 1;
        if (machine.events[i].serial > set->last_serial && in_ms > 0 && in_ms < left_ms) left_ms = in_ms;
    }
    unlock();
    return (int)left_ms;
}

static int wait(int call, struct event_set *set, struct event_data *out, unsigned timeout_ms) {
    char drained[4096];
    int64_t end_ms = wall_ms() + timeout_ms;
    for (;;) {
        int code = look(call, set, out);
        int64_t left_ms = end_ms - wall_ms();
        if (code != TIMEOUT || left_ms <= 0) return code;
        struct pollfd poll_on = {.fd = set->changes, .events = POLLIN};
        if (poll(&poll_on, 1, span(set, left_ms)) > 0) {
            while (read(set->changes, drained, sizeof drained) > 0) continue;
            usleep(6000); /* longer than two looks at the file are apart */
        }
    }
}

API int nvmlEventSetWait_v2(struct event_set *set, struct event_data *out, unsigned timeout_ms) {
    return wait(C_nvmlEventSetWait_v2, set, out, timeout_ms);
}

/* The first version knows nothing of instances. */
API int nvmlEventSetWait(struct event_set *set, struct event_data *out, unsigned timeout_ms) {
    int code = wait(C_nvmlEventSetWait, set, out, timeout_ms);
    if (!code) out->gi = out->ci = 0;
    return code;
}
