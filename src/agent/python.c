#include "agent/python.h"

#include "agent/hot.h"
#include "agent/load.h"
#include "agent/probe.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_MINOR = 8, FIRST_SELF_DESCRIBED_MINOR = 13, FIRST_OWN_STATE_MINOR = 12 };

void *agent_python_symbol(const struct agent_python *python, const char *name) {
    return dlsym(python->library, name);
}

static uint64_t find_address(const struct agent_python *python, const char *symbol) {
    return (uint64_t)(uintptr_t)agent_python_symbol(python, symbol);
}

typedef void *state_getter(void);

static state_getter *find_getter(const struct agent_python *python, const char *symbol) {
    return (state_getter *)(uintptr_t)find_address(python, symbol);
}

/* A function's size as the symbol table has it. Only glibc's loader tells. */
static uint64_t find_size(uint64_t address) {
    enum { SYMBOL_ENTRY = 1, MAX_BYTES = 4 << 20 }; /* RTLD_DL_SYMENT (dlfcn.h of glibc) */
    int (*find)(const void *, Dl_info *, void **, int) =
        (int (*)(const void *, Dl_info *, void **, int))(uintptr_t)dlsym(RTLD_DEFAULT, "dladdr1");
    Dl_info info;
    void *entry = NULL;
    if (address == 0 || find == NULL || find(pointer_to(address), &info, &entry, SYMBOL_ENTRY) == 0 || entry == NULL ||
        (uint64_t)(uintptr_t)info.dli_saddr != address)
        return 0;
    uint64_t size_bytes = ((const ElfW(Sym) *)entry)->st_size;
    return size_bytes <= MAX_BYTES ? size_bytes : 0;
}

/* "3.9.18 (main, …)" as PY_VERSION_HEX; 0 when it does not begin like that. */
static uint32_t parse_version(const char *text) {
    char *end = NULL;
    unsigned long major = strtoul(text, &end, 10);
    if (*end != '.')
        return 0;
    unsigned long minor = strtoul(end + 1, &end, 10);
    unsigned long micro = *end == '.' ? strtoul(end + 1, &end, 10) : 0;
    if (major > 0xff || minor > 0xff || micro > 0xff)
        return 0;
    enum { FINAL = 0xf0 };
    return (uint32_t)(major << 24 | minor << 16 | micro << 8 | FINAL);
}

static uint32_t find_version(const struct agent_python *python) {
    uint64_t exact = find_address(python, "Py_Version"); /* 3.11+ */
    if (exact != 0)
        return (uint32_t) * (const unsigned long *)(uintptr_t)exact;
    const char *(*get)(void) = (const char *(*)(void))(uintptr_t)find_address(python, "Py_GetVersion");
    return get != NULL ? parse_version(get()) : 0;
}

/* 3.8 to 3.12: by the minor version. Where there are two tables for it, they differ in nothing that the agent reads. */
static bool take_table(struct agent_python *python) {
    size_t count = 0;
    const struct layout *tables = layout_tables(&count);
    for (size_t i = 0; i < count; i++) {
        if (tables[i].version >> 16 == python->version >> 16) {
            python->layout = tables[i];
            return true;
        }
    }
    return false;
}

static bool find_layout(struct agent_python *python, char *reason, size_t reason_bytes) {
    unsigned major = python->version >> 24, minor = python->version >> 16 & 0xff;
    if (major != 3 || minor < FIRST_MINOR) {
        (void)snprintf(reason, reason_bytes, "its CPython %u.%u is none that strobe knows", major, minor);
        return false;
    }
    if (minor < FIRST_SELF_DESCRIBED_MINOR)
        return take_table(python);
    struct error error = {0};
    uint8_t table[DEBUG_OFFSETS_MAX_BYTES];
    if (!probe_readable(python->runtime, sizeof table))
        return false;
    memcpy(table, (const void *)(uintptr_t)python->runtime, sizeof table);
    if (debug_offsets_decode(table, sizeof table, &python->layout, &error) == STATUS_OK)
        return true;
    (void)snprintf(reason, reason_bytes, "its CPython %u.%u cannot be looked into: %s", major, minor, error.text);
    return false;
}

static bool find_getters(struct agent_python *python) {
    python->first_state = find_getter(python, "PyGILState_GetThisThreadState");
    python->current_state = find_getter(python, "PyThreadState_GetUnchecked"); /* 3.13+ */
    if (python->current_state == NULL)
        python->current_state = find_getter(python, "_PyThreadState_UncheckedGet");
    return python->first_state != NULL && python->current_state != NULL;
}

enum agent_python_presence agent_python_find(struct agent_python *python, void *library, char *reason,
                                             size_t reason_bytes) {
    *python = (struct agent_python){.library = library};
    python->runtime = find_address(python, "_PyRuntime");
    python->eval = find_address(python, "_PyEval_EvalFrameDefault");
    python->code_type = find_address(python, "PyCode_Type");
    python->unicode_type = find_address(python, "PyUnicode_Type");
    python->bytes_type = find_address(python, "PyBytes_Type");
    (void)snprintf(reason, reason_bytes, "no CPython that exports its symbols is loaded");
    if (python->runtime == 0)
        return AGENT_PYTHON_NONE;
    (void)snprintf(reason, reason_bytes, "its CPython exports too little to look into it");
    python->version = find_version(python);
    if (python->version == 0 || python->code_type == 0 || python->unicode_type == 0 || python->bytes_type == 0 ||
        !find_getters(python) || !find_layout(python, reason, reason_bytes))
        return AGENT_PYTHON_UNKNOWN;
    reason[0] = '\0';
    python->eval_bytes = find_size(python->eval);
    return AGENT_PYTHON_FOUND;
}

static bool is_own(const struct agent_python *python, uint64_t state) {
    return load_u64(pointer_to(state + python->layout.thread.thread_id)) == (uint64_t)pthread_self();
}

/* The same of a state that may be any thread's, or freed. */
static bool is_own_if_readable(const struct agent_python *python, uint64_t state) {
    uint64_t thread_id = 0;
    return probe_copy(state + python->layout.thread.thread_id, &thread_id, sizeof thread_id) &&
           thread_id == (uint64_t)pthread_self();
}

AGENT_HOT struct agent_thread_state agent_python_own_state(const struct agent_python *python) {
    uint64_t current = (uint64_t)(uintptr_t)python->current_state();
    if (current != 0 && layout_minor(&python->layout) >= FIRST_OWN_STATE_MINOR)
        return (struct agent_thread_state){current, true};
    uint64_t first = (uint64_t)(uintptr_t)python->first_state();
    /* What is the current state at this moment is there. */
    if (current != 0 && current == first && is_own(python, current))
        return (struct agent_thread_state){current, true};
    bool first_readable =
        first != 0 && probe_readable(first, python->layout.thread.size) && is_own_if_readable(python, first);
    /* Another thread holds the GIL, or this one does with another state: in another interpreter, or after a swap. */
    if (current != 0 && current != first && is_own_if_readable(python, current))
        return (struct agent_thread_state){current, true};
    return (struct agent_thread_state){first_readable ? first : 0, false};
}
