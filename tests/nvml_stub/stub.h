/* What the parts of the stub share: the machine as the scenario describes it, and the way into every call. */
#ifndef NVML_STUB_H
#define NVML_STUB_H

#include <stdbool.h>
#include <stdint.h>

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    VERSION_MISMATCH = 25,
    UNKNOWN = 999,
};

enum { GPUS = 32, MIG_DEVICES = 8, FIELDS = 320, GPM_METRICS = 480, SCOPES = 40, PROCESSES = 64, PAGES = 8, EVENTS = 512 };

#define SCALAR(f) V_##f,
#define MEMBER(f, m) V_##f##_##m,
#define ARGUMENT(f, a) V_##f##_##a,
#define ARGUMENT2(f, a, b) V_##f##_##a##_##b,
#define INDEXED(f, n) V_##f, V_##f##_last = V_##f + (n) - 1,
#define INDEXED_MEMBER(f, m, n) V_##f##_##m, V_##f##_##m##_last = V_##f##_##m + (n) - 1,
enum {
#include "values.def"
    VALUES
};
#undef SCALAR
#undef MEMBER
#undef ARGUMENT
#undef ARGUMENT2
#undef INDEXED
#undef INDEXED_MEMBER

#define SYMBOL(f) C_##f,
enum {
#include "symbols.def"
    CALLS
};
#undef SYMBOL

enum text { UUID, SERIAL, NAME, VBIOS, BOARD_PART, INFOROM, CHASSIS, TEXTS };
enum kind { COMPUTE, GRAPHICS, MPS };

/* One scripted value: base + rate * seconds + noise * draw; `whole` is the base as 64 exact bits. */
struct value {
    uint64_t whole;
    double base, rate, noise;
    uint32_t key;
    int16_t code;
    bool set;
    uint8_t type;
};

struct behaviour {
    int16_t code;
    int32_t delay_ms;
};

struct process {
    unsigned pid;
    enum kind kind;
    uint64_t memory, stamp_us;
    unsigned sm, mem, enc, dec, gi, ci;
};

struct page {
    unsigned cause;
    uint64_t address, stamp_us;
};

/* A GPU or a MIG device. Its address is the handle; slot, parent and mig never change. */
struct device {
    unsigned slot;
    struct device *parent;
    unsigned mig;
    struct device *migs[MIG_DEVICES];

    bool present, lost, vanished, listed, has_gpm;
    unsigned index, minor, domain, bus, device;
    char text[TEXTS][96];
    unsigned gi, ci, slices;
    char profile[32];
    struct value values[VALUES];
    struct value fields[FIELDS];
    struct value *scopes[FIELDS];
    struct value totals[FIELDS];
    struct value gpm[GPM_METRICS];
    struct behaviour calls[CALLS];
    struct process processes[PROCESSES];
    unsigned process_count;
    struct page pages[PAGES];
    unsigned page_count;
};

struct event {
    uint64_t serial, type, data;
    int64_t at_ms;
    unsigned slot, gi, ci;
};

struct machine {
    struct device gpus[GPUS];
    struct behaviour calls[CALLS];
    struct event events[EVENTS];
    unsigned event_count;
    struct { unsigned pid; char name[64]; } names[PROCESSES];
    unsigned name_count;
    char driver[80], nvml[80];
    int cuda, init_code;
    int64_t start_ms;
    uint64_t seed;
    bool loaded, broken, listing_at_init;
    unsigned initialised;
};

extern struct machine machine;

/* scenario.c */
void scenario_refresh(void);
void scenario_list(void);
const char *scenario_path(void);
bool parse_value(struct value *value, char **words, int count);
const char *product_text(const char *name);
extern const char *const call_names[CALLS];

/* stub.c: every call is enter .. leave. A code other than 0 from enter ends the call, with nothing held. */
int enter_uninitialised(int call);
int enter_system(int call);
int enter(struct device *device, int call);
int leave(int code);
int unanswered(int call);
int64_t wall_ms(void);
bool known_device(const struct device *device);
int read_whole(const struct device *device, const struct value *value, uint64_t *out);
int read_real(const struct device *device, const struct value *value, double *out);
void lock(void);
void unlock(void);

#define API __attribute__((visibility("default")))
#endif
