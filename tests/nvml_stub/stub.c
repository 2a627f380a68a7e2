/* The way into every call: the lock, a changed scenario, delays, scripted codes, lost GPUs; and how a value is drawn. */
#define _GNU_SOURCE
#include "stub.h"

#include <math.h>
#include <pthread.h>
#include <time.h>

enum { SLICE_MS = 10 };

struct machine machine;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

void lock(void) { pthread_mutex_lock(&mutex); }
void unlock(void) { pthread_mutex_unlock(&mutex); }

static int64_t clock_ms(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t wall_ms(void) { return clock_ms(CLOCK_REALTIME); }

static void nap(int ms) {
    struct timespec span = {ms / 1000, (ms % 1000) * 1000000L};
    nanosleep(&span, NULL);
}

bool known_device(const struct device *device) {
    for (unsigned slot = 0; slot < GPUS; slot++) {
        if (device == &machine.gpus[slot]) return true;
        for (unsigned mig = 0; mig < MIG_DEVICES; mig++)
            if (device && device == machine.gpus[slot].migs[mig]) return true;
    }
    return false;
}

static struct behaviour behaviour_of(const struct device *device, int call) {
    struct behaviour found = machine.calls[call];
    for (; device; device = device->parent) {
        if (device->calls[call].code) found.code = device->calls[call].code;
        if (device->calls[call].delay_ms) found.delay_ms = device->calls[call].delay_ms;
    }
    return found;
}

/* Waits as long as the scenario says, without the lock; a scenario that no longer says so ends it. */
static void hang(const struct device *device, int call) {
    int64_t begin = clock_ms(CLOCK_MONOTONIC);
    for (;;) {
        int64_t left = begin + behaviour_of(device, call).delay_ms - clock_ms(CLOCK_MONOTONIC);
        if (left <= 0) return;
        unlock();
        nap(left < SLICE_MS ? (int)left : SLICE_MS);
        lock();
        scenario_refresh();
    }
}

int leave(int code) {
    unlock();
    return code;
}

static void begin(struct device *device, int call) {
    lock();
    if (!machine.initialised) machine.loaded = false; /* looks at the file now */
    scenario_refresh();
    if (!machine.broken) hang(device, call);
}

static int checked(int code) { return code ? leave(code) : SUCCESS; }

int enter_uninitialised(int call) {
    begin(NULL, call);
    return checked(machine.broken ? UNKNOWN : behaviour_of(NULL, call).code);
}

int enter_system(int call) {
    begin(NULL, call);
    if (machine.broken) return leave(UNKNOWN);
    return checked(machine.initialised ? behaviour_of(NULL, call).code : UNINITIALIZED);
}

static bool gone(const struct device *device) {
    for (; device; device = device->parent)
        if (!device->present || device->lost || device->vanished) return true;
    return false;
}

int enter(struct device *device, int call) {
    if (!known_device(device)) return INVALID_ARGUMENT;
    begin(device, call);
    if (machine.broken) return leave(UNKNOWN);
    if (!machine.initialised) return leave(UNINITIALIZED);
    return checked(gone(device) ? GPU_IS_LOST : behaviour_of(device, call).code);
}

int unanswered(int call) {
    int code = enter_system(call);
    return code ? code : leave(NOT_SUPPORTED);
}

/* Values */

static uint64_t mix(uint64_t x) {
    x ^= x >> 30, x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27, x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* A draw in -1 .. 1 for a value and a number of the moment. */
static double draw(const struct device *device, const struct value *value, int64_t moment) {
    uint64_t bits = mix(machine.seed * 1000003 + device->slot * 131 + value->key + mix((uint64_t)moment));
    return (double)(bits >> 11) / (double)(1ull << 52) - 1;
}

/* A level has a new draw every 100 ms. What grows goes on a line from one second's draw to the next, so that it never
   falls as long as twice its noise is less than what it grows in a second. */
static double change(const struct device *device, const struct value *value) {
    int64_t now_ms = wall_ms();
    if (value->rate == 0) return value->noise == 0 ? 0 : value->noise * draw(device, value, now_ms / 100);
    int64_t ms = machine.start_ms ? now_ms - machine.start_ms : clock_ms(CLOCK_BOOTTIME);
    double sum = value->rate * ((double)ms / 1000);
    if (value->noise == 0) return sum;
    double from = draw(device, value, now_ms / 1000), to = draw(device, value, now_ms / 1000 + 1);
    return sum + value->noise * (from + (to - from) * (double)(now_ms % 1000) / 1000);
}

int read_whole(const struct device *device, const struct value *value, uint64_t *out) {
    if (!value->set) return NOT_SUPPORTED;
    if (value->code) return value->code;
    bool moves = value->rate != 0 || value->noise != 0;
    *out = value->whole + (moves ? (uint64_t)(int64_t)llround(change(device, value)) : 0);
    return SUCCESS;
}

int read_real(const struct device *device, const struct value *value, double *out) {
    if (!value->set) return NOT_SUPPORTED;
    if (value->code) return value->code;
    *out = value->base + change(device, value);
    return SUCCESS;
}
