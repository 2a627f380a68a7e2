/* Reads the scenario file into the machine, again whenever it changes. README.md gives the lines. */
#define _GNU_SOURCE
#include "stub.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { WORDS = 48, CHECK_MS = 5, FILE_BYTES = 1 << 20 };

struct line {
    char *words[WORDS];
    int count;
    const char *tail; /* what follows the first "=" word, blanks cut */
};

struct name {
    const char *text;
    int first, count;
};

#define SCALAR(f) {#f, V_##f, 1},
#define MEMBER(f, m) {#f "." #m, V_##f##_##m, 1},
#define ARGUMENT(f, a) {#f "(" #a ")", V_##f##_##a, 1},
#define ARGUMENT2(f, a, b) {#f "(" #a "," #b ")", V_##f##_##a##_##b, 1},
#define INDEXED(f, n) {#f, V_##f, n},
#define INDEXED_MEMBER(f, m, n) {#f "." #m, V_##f##_##m, n},
static const struct name names[] = {
#include "values.def"
};

#define SYMBOL(f) #f,
const char *const call_names[CALLS] = {
#include "symbols.def"
};
#undef SYMBOL

static const char *const text_names[TEXTS] = {"uuid", "serial", "name", "vbios", "board_part", "inforom", "chassis"};
static const char *const type_names[] = {"double", "ui", "ul", "ull", "sll", "si", "us"};

static bool setting(struct device *device, struct line line);

static bool is(const char *word, const char *expected) { return strcmp(word, expected) == 0; }

static struct line from(struct line line, int words) {
    memmove(line.words, line.words + words, sizeof *line.words * (size_t)(line.count - words));
    line.count -= words;
    return line;
}

static bool number(const char *word, unsigned *out) {
    char *end;
    *out = (unsigned)strtoul(word, &end, 0);
    return *word && !*end;
}

/* "3", "0-17", "0,4,6" or "*" as bits below `limit`. */
static bool selection(const char *word, unsigned limit, uint64_t *bits) {
    *bits = 0;
    if (is(word, "*")) return *bits = limit >= 64 ? ~0ull : (1ull << limit) - 1, true;
    while (*word) {
        char *end;
        unsigned long first = strtoul(word, &end, 10), last = first;
        if (end == word) return false;
        if (*end == '-') last = strtoul(end + 1, &end, 10);
        if (last >= limit || first > last) return false;
        for (unsigned long i = first; i <= last; i++) *bits |= 1ull << i;
        if (*end && *end != ',') return false;
        word = *end ? end + 1 : end;
    }
    return *bits != 0;
}

/* Values: "61", "-3", "0xff", "61.5", then "+RATE/s" and "~NOISE" in any order. */
bool parse_value(struct value *value, char **words, int count) {
    char *end;
    if (count < 1) return false;
    value->base = strtod(words[0], &end);
    if (*end || end == words[0]) return false;
    value->whole = strpbrk(words[0], ".eE") && !strchr(words[0], 'x') ? (uint64_t)(int64_t)value->base
                   : words[0][0] == '-'                               ? (uint64_t)strtoll(words[0], NULL, 0)
                                                                      : strtoull(words[0], NULL, 0);
    value->rate = value->noise = 0;
    for (int i = 1; i < count; i++) {
        double amount = strtod(words[i] + 1, &end);
        if (words[i][0] == '~' && !*end) value->noise = amount;
        else if ((words[i][0] == '+' || words[i][0] == '-') && is(end, "/s"))
            value->rate = words[i][0] == '+' ? amount : -amount;
        else return false;
    }
    value->set = true;
    value->code = 0;
    return true;
}

/* "= VALUE", "return CODE" or "absent", for one value. */
static bool assign(struct value *value, struct line line, uint32_t key) {
    value->key = key;
    if (line.count == 1 && is(line.words[0], "absent")) return value->set = false, true;
    unsigned code;
    if (line.count == 2 && is(line.words[0], "return") && number(line.words[1], &code)) {
        value->set = true;
        value->code = (int16_t)code;
        return true;
    }
    return line.count > 1 && is(line.words[0], "=") && parse_value(value, line.words + 1, line.count - 1);
}

static bool type_of(const char *word, uint8_t *type) {
    for (unsigned i = 0; i < sizeof type_names / sizeof *type_names; i++)
        if (is(word, type_names[i])) return *type = (uint8_t)i, true;
    return false;
}

static bool scoped(struct device *device, unsigned id, struct line line) {
    uint64_t scopes;
    if (line.count < 3 || !selection(line.words[1], SCOPES, &scopes)) return false;
    if (!device->scopes[id]) device->scopes[id] = calloc(SCOPES, sizeof(struct value));
    for (unsigned scope = 0; scope < SCOPES; scope++)
        if (scopes >> scope & 1 && !assign(&device->scopes[id][scope], from(line, 2), id * 64 + scope + (device->mig << 20)))
            return false;
    return true;
}

static bool field(struct device *device, struct line line) {
    unsigned id;
    if (line.count < 3 || !number(line.words[1], &id) || id >= FIELDS) return false;
    if (is(line.words[2], "scope")) return scoped(device, id, from(line, 2));
    if (is(line.words[2], "total")) return assign(&device->totals[id], from(line, 3), id * 64 + 62 + (device->mig << 20));
    if (is(line.words[2], "type")) return line.count == 4 && type_of(line.words[3], &device->fields[id].type);
    return assign(&device->fields[id], from(line, 2), id * 64 + 63 + (device->mig << 20));
}

static bool gpm(struct device *device, struct line line) {
    unsigned id;
    if (line.count < 3 || !number(line.words[1], &id) || id >= GPM_METRICS) return false;
    device->has_gpm = true;
    return assign(&device->gpm[id], from(line, 2), 50000 + id + (device->mig << 20));
}

static bool call(struct behaviour *calls, struct line line) {
    unsigned amount, found = 0;
    if (line.count != 4 || !number(line.words[3], &amount)) return false;
    for (int id = 0; id < CALLS; id++) {
        if (!is(line.words[1], "*") && !is(line.words[1], call_names[id])) continue;
        found++;
        if (is(line.words[2], "return")) calls[id].code = (int16_t)amount;
        else if (is(line.words[2], "delay")) calls[id].delay_ms = (int32_t)amount;
        else return false;
    }
    return found > 0;
}

/* Pairs of words as options: returns the word after `key`, or `absent`. */
static const char *option(struct line line, const char *key, const char *absent) {
    for (int i = 0; i + 1 < line.count; i++)
        if (is(line.words[i], key)) return line.words[i + 1];
    return absent;
}

static uint64_t amount(struct line line, const char *key, const char *absent) {
    const char *word = option(line, key, absent);
    return is(word, "none") ? UINT64_MAX : strtoull(word, NULL, 0);
}

static bool process(struct device *device, struct line line) {
    unsigned pid, at = 0;
    if (line.count < 3 || !number(line.words[1], &pid)) return false;
    while (at < device->process_count && device->processes[at].pid != pid) at++;
    if (is(line.words[2], "gone")) {
        if (at < device->process_count) device->processes[at] = device->processes[--device->process_count];
        return true;
    }
    if (at == PROCESSES) return false;
    struct process made = {.pid = pid, .kind = COMPUTE};
    if (is(line.words[2], "graphics")) made.kind = GRAPHICS;
    else if (is(line.words[2], "mps")) made.kind = MPS;
    else if (!is(line.words[2], "compute")) return false;
    made.memory = amount(line, "memory", "0");
    made.stamp_us = amount(line, "stamp", "0");
    made.sm = (unsigned)amount(line, "sm", "0"), made.mem = (unsigned)amount(line, "mem", "0");
    made.enc = (unsigned)amount(line, "enc", "0"), made.dec = (unsigned)amount(line, "dec", "0");
    made.gi = (unsigned)amount(line, "gi", "0xffffffff"), made.ci = (unsigned)amount(line, "ci", "0xffffffff");
    device->processes[at] = made;
    if (at == device->process_count) device->process_count++;
    return true;
}

static bool retired(struct device *device, struct line line) {
    if (line.count < 3 || device->page_count == PAGES) return false;
    struct page page = {.cause = is(line.words[1], "double"), .address = strtoull(line.words[2], NULL, 0)};
    page.stamp_us = amount(line, "stamp", "0");
    device->pages[device->page_count++] = page;
    return true;
}

static void clear(struct device *device) {
    if (!device->present) return;
    for (unsigned id = 0; id < FIELDS; id++) free(device->scopes[id]);
    struct device blank = {.slot = device->slot, .parent = device->parent, .mig = device->mig};
    memcpy(blank.migs, device->migs, sizeof blank.migs);
    *device = blank;
}

static void mig_identity(struct device *device) {
    const struct device *parent = device->parent;
    snprintf(device->text[NAME], sizeof *device->text, "%.60s MIG %.20s", parent->text[NAME], device->profile);
    const char *tail = strlen(parent->text[UUID]) > 8 ? parent->text[UUID] + 8 : "";
    snprintf(device->text[UUID], sizeof *device->text, "MIG-%04x%.60s", device->slot * 256 + device->mig, tail);
}

static bool mig_defined(struct device *device, struct line line) {
    struct device *parent = device->parent;
    clear(device);
    device->present = true;
    device->gi = (unsigned)amount(line, "gi", "0"), device->ci = (unsigned)amount(line, "ci", "0");
    device->slices = (unsigned)amount(line, "slices", "1");
    snprintf(device->profile, sizeof device->profile, "%s", option(line, "profile", "1g.10gb"));
    mig_identity(device);
    memcpy(device->gpm, parent->gpm, sizeof parent->gpm);
    device->has_gpm = parent->has_gpm;
    for (unsigned id = 0; id < GPM_METRICS; id++) device->gpm[id].key += device->mig << 20;
    const char *memory = option(line, "memory", "10200547328");
    struct value *total = &device->values[V_nvmlDeviceGetMemoryInfo_v2_total];
    struct value whole = {.whole = strtoull(memory, NULL, 0), .base = strtod(memory, NULL), .set = true};
    *total = whole;
    whole.whole /= 4, whole.base /= 4;
    device->values[V_nvmlDeviceGetMemoryInfo_v2_used] = whole;
    whole.whole = total->whole - whole.whole, whole.base = (double)whole.whole;
    device->values[V_nvmlDeviceGetMemoryInfo_v2_free] = whole;
    whole.whole = 0, whole.base = 0;
    device->values[V_nvmlDeviceGetMemoryInfo_v2_reserved] = whole;
    whole.whole = 1, whole.base = 1;
    parent->values[V_nvmlDeviceGetMigMode_current] = parent->values[V_nvmlDeviceGetMigMode_pending] = whole;
    return true;
}

static bool mig(struct device *device, struct line line) {
    unsigned index;
    if (device->parent || line.count < 2) return false;
    if (is(line.words[1], "off")) {
        for (index = 0; index < MIG_DEVICES; index++)
            if (device->migs[index]) clear(device->migs[index]);
        struct value off = {.set = true};
        device->values[V_nvmlDeviceGetMigMode_current] = device->values[V_nvmlDeviceGetMigMode_pending] = off;
        return true;
    }
    if (line.count < 3 || !number(line.words[1], &index) || index >= MIG_DEVICES) return false;
    if (!device->migs[index]) {
        device->migs[index] = calloc(1, sizeof(struct device));
        *device->migs[index] = (struct device){.slot = device->slot, .parent = device, .mig = index + 1};
    }
    if (is(line.words[2], "gi")) return mig_defined(device->migs[index], line);
    return device->migs[index]->present && setting(device->migs[index], from(line, 2));
}

static bool address(struct device *device, const char *word) {
    unsigned function;
    return sscanf(word, "%x:%x:%x.%x", &device->domain, &device->bus, &device->device, &function) == 4;
}

static bool named_value(struct device *device, struct line line) {
    char base[96];
    uint64_t indexes;
    const char *word = line.words[0];
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        const char *open = strchr(word, '(');
        bool whole = is(word, names[i].text);
        bool indexed = names[i].count > 1 && open && strlen(names[i].text) == (size_t)(open - word) &&
                       strncmp(word, names[i].text, (size_t)(open - word)) == 0;
        if (!whole && !indexed) continue;
        snprintf(base, sizeof base, "%s", indexed ? open + 1 : "*");
        if (indexed && strchr(base, ')')) *strchr(base, ')') = 0;
        if (!selection(base, (unsigned)names[i].count, &indexes)) return false;
        for (int at = 0; at < names[i].count; at++) {
            int id = names[i].first + at;
            if (indexes >> at & 1 && !assign(&device->values[id], from(line, 1), (uint32_t)(60000 + id) + (device->mig << 20)))
                return false;
        }
        return true;
    }
    return false;
}

static bool setting(struct device *device, struct line line) {
    const char *word = line.words[0];
    if (line.count == 1) {
        if (is(word, "lost")) return device->lost = true;
        if (is(word, "vanish")) return device->vanished = true;
        if (is(word, "back")) return device->lost = device->vanished = false, true;
        return false;
    }
    for (int text = 0; text < TEXTS; text++)
        if (is(word, text_names[text]) && is(line.words[1], "="))
            return snprintf(device->text[text], sizeof *device->text, "%s", line.tail), true;
    if (is(word, "field")) return field(device, line);
    if (is(word, "gpm")) return gpm(device, line);
    if (is(word, "call")) return call(device->calls, line);
    if (is(word, "process")) return process(device, line);
    if (is(word, "retired")) return retired(device, line);
    if (is(word, "mig")) return mig(device, line);
    bool equals = line.count == 3 && is(line.words[1], "=");
    if (is(word, "minor")) return equals && number(line.words[2], &device->minor);
    if (is(word, "index")) return equals && number(line.words[2], &device->index);
    if (is(word, "pci")) return equals && address(device, line.words[2]);
    return named_value(device, line);
}

static void identity(struct device *device, unsigned slot) {
    static const unsigned char buses[8] = {0x0f, 0x2d, 0x44, 0x5b, 0x89, 0xa8, 0xc0, 0xd8};
    unsigned tag = (unsigned)(machine.seed * 7919 + slot * 104729);
    device->present = true;
    device->index = device->minor = slot;
    device->bus = slot < 8 ? buses[slot] : 0xe0 + slot;
    snprintf(device->text[UUID], sizeof *device->text, "GPU-%08x-5c3a-4e1b-9f60-%04x%08x", tag, slot, ~tag);
    snprintf(device->text[SERIAL], sizeof *device->text, "16523%08u", tag % 100000000);
}

static bool gpus(const char *which, struct line line) {
    uint64_t slots;
    if (!selection(which, GPUS, &slots)) return false;
    for (unsigned slot = 0; slot < GPUS; slot++) {
        struct device *device = &machine.gpus[slot];
        if (!(slots >> slot & 1) || (is(which, "*") && !device->present)) continue;
        if (!device->present) identity(device, slot);
        if (!setting(device, line)) return false;
    }
    return true;
}

static struct line split(char *text) {
    struct line line = {.count = 0, .tail = ""};
    if (strchr(text, '#')) *strchr(text, '#') = 0;
    char *equals = strstr(text, " = ");
    static char tail[96];
    if (equals) {
        snprintf(tail, sizeof tail, "%s", equals + 3 + strspn(equals + 3, " \t"));
        for (size_t n = strlen(tail); n && isspace((unsigned char)tail[n - 1]);) tail[--n] = 0;
        line.tail = tail;
    }
    for (char *word = strtok(text, " \t\r"); word && line.count < WORDS; word = strtok(NULL, " \t\r"))
        line.words[line.count++] = word;
    return line;
}

static bool host(const char *product, const char *count_word) {
    unsigned count;
    const char *text = product_text(product);
    if (!text || !number(count_word, &count) || count > GPUS) return false;
    for (unsigned slot = 0; slot < GPUS; slot++) clear(&machine.gpus[slot]);
    for (unsigned slot = 0; slot < count; slot++) identity(&machine.gpus[slot], slot);
    char copy[256];
    while (*text) {
        size_t length = strcspn(text, "\n");
        snprintf(copy, sizeof copy, "%.*s", (int)length, text);
        struct line line = split(copy);
        if (line.count && !gpus("*", line)) return fprintf(stderr, "nvml stub: product line: %.*s\n", (int)length, text), false;
        text += length + (text[length] == '\n');
    }
    return true;
}

static bool event(struct line line) {
    unsigned slot;
    if (machine.event_count == EVENTS || line.count < 6 || !number(option(line, "gpu", "x"), &slot)) return false;
    struct event made = {.serial = strtoull(line.words[1], NULL, 10), .slot = slot, .type = 8};
    made.data = amount(line, "xid", "0");
    if (is(option(line, "xid", ""), "")) made.type = amount(line, "type", "0"), made.data = amount(line, "data", "0");
    made.gi = (unsigned)amount(line, "gi", "0xffffffff"), made.ci = (unsigned)amount(line, "ci", "0xffffffff");
    made.at_ms = (int64_t)amount(line, "at", "0");
    machine.events[machine.event_count++] = made;
    return slot < GPUS;
}

static bool process_name(struct line line) {
    if (line.count != 4 || machine.name_count == PROCESSES || !is(line.words[2], "name")) return false;
    machine.names[machine.name_count].pid = (unsigned)strtoul(line.words[1], NULL, 10);
    snprintf(machine.names[machine.name_count++].name, sizeof machine.names->name, "%s", line.words[3]);
    return true;
}

static bool version(char *target, size_t size, struct line line) {
    return line.count == 2 && snprintf(target, size, "%s", line.words[1]) > 0;
}

static bool understood(struct line line) {
    const char *word = line.words[0];
    if (is(word, "gpu")) return line.count > 2 && gpus(line.words[1], from(line, 2));
    if (is(word, "call")) return call(machine.calls, line);
    if (is(word, "event")) return event(line);
    if (is(word, "process")) return process_name(line);
    if (is(word, "host")) return line.count == 3 && host(line.words[1], line.words[2]);
    if (is(word, "init")) return line.count == 3 && is(line.words[1], "return") && (machine.init_code = atoi(line.words[2]), true);
    if (is(word, "driver")) return version(machine.driver, sizeof machine.driver, line);
    if (is(word, "nvml")) return version(machine.nvml, sizeof machine.nvml, line);
    if (line.count != 2) return false;
    if (is(word, "seed")) return machine.seed = strtoull(line.words[1], NULL, 10), true;
    if (is(word, "start")) return machine.start_ms = strtoll(line.words[1], NULL, 10), true;
    if (is(word, "cuda")) return machine.cuda = atoi(line.words[1]), true;
    if (is(word, "listing")) return machine.listing_at_init = is(line.words[1], "at_init"), true;
    return false;
}

static void reset(void) {
    for (unsigned slot = 0; slot < GPUS; slot++) {
        machine.gpus[slot].slot = slot;
        clear(&machine.gpus[slot]);
        for (unsigned mig = 0; mig < MIG_DEVICES; mig++)
            if (machine.gpus[slot].migs[mig]) clear(machine.gpus[slot].migs[mig]);
    }
    memset(machine.calls, 0, sizeof machine.calls);
    machine.event_count = machine.name_count = 0;
    machine.init_code = 0;
    machine.start_ms = 0;
    machine.seed = 1;
    machine.cuda = 12080;
    machine.broken = machine.listing_at_init = false;
    strcpy(machine.driver, "570.86.15");
    strcpy(machine.nvml, "12.570.86.15");
}

static void load(char *text) {
    bool listed[GPUS];
    for (unsigned slot = 0; slot < GPUS; slot++) listed[slot] = machine.gpus[slot].listed;
    reset();
    int at = 0;
    for (char *next; text; text = next) {
        next = strchr(text, '\n');
        if (next) *next++ = 0;
        at++;
        char shown[128];
        snprintf(shown, sizeof shown, "%s", text);
        struct line line = split(text);
        if (!line.count || understood(line)) continue;
        fprintf(stderr, "nvml stub: %s:%d not understood: %s\n", scenario_path(), at, shown);
        machine.broken = true;
    }
    for (unsigned slot = 0; slot < GPUS; slot++) machine.gpus[slot].listed = listed[slot];
    if (!machine.listing_at_init) scenario_list();
}

/* Which GPUs the listing holds from now on. */
void scenario_list(void) {
    for (unsigned slot = 0; slot < GPUS; slot++)
        machine.gpus[slot].listed = machine.gpus[slot].present && !machine.gpus[slot].vanished;
}

const char *scenario_path(void) {
    const char *path = getenv("SECONDSIGHT_NVML_SCENARIO");
    return path ? path : "";
}

static bool due(void) {
    static int64_t checked_ms;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    if (machine.loaded && ms - checked_ms < CHECK_MS) return false;
    checked_ms = ms;
    return true;
}

void scenario_refresh(void) {
    static struct stat seen;
    struct stat found;
    if (!due()) return;
    if (stat(scenario_path(), &found) != 0) {
        machine.loaded = false;
        return;
    }
    if (machine.loaded && found.st_ino == seen.st_ino && found.st_size == seen.st_size &&
        found.st_mtim.tv_sec == seen.st_mtim.tv_sec && found.st_mtim.tv_nsec == seen.st_mtim.tv_nsec)
        return;
    FILE *file = fopen(scenario_path(), "r");
    if (!file) return;
    char *text = malloc(FILE_BYTES);
    size_t length = fread(text, 1, FILE_BYTES - 1, file);
    fclose(file);
    text[length] = 0;
    load(text);
    free(text);
    seen = found;
    machine.loaded = true;
}
