#include "cpython/runtime.h"

#include "cpython/dict.h"
#include "cpython/interp.h"
#include "cpython/long.h"

#include <stdio.h>
#include <string.h>

/* The newest interpreter, or its newest thread, may end between two reads. */
enum { FIT_ATTEMPTS = 5 };

static bool fits_now(struct runtime *runtime) {
    remote_addr interp = 0;
    runtime->empty = false;
    if (interp_first(runtime, &interp) != STATUS_OK)
        return false;
    if (interp == 0) {
        runtime->empty = true;
        return true;
    }
    remote_addr thread = 0, owner = 0;
    const struct layout *layout = &runtime->layout;
    if (memory_read_u64(runtime->live, interp + layout->interp.threads_head, &thread) != STATUS_OK)
        return false;
    if (thread == 0) {
        runtime->empty = true;
        return true;
    }
    return memory_read_u64(runtime->live, thread + layout->thread.interp, &owner) == STATUS_OK && owner == interp;
}

/* Whether the layout makes sense of what stands at the runtime: its first interpreter's first thread points back to it.
 * Without an interpreter, or without a thread in it, the runtime is empty, and every layout fits. */
static bool fits(struct runtime *runtime) {
    for (int i = 0; i < FIT_ATTEMPTS; i++)
        if (fits_now(runtime))
            return true;
    return false;
}

/* sys.hexversion, which settles the version even where no symbol or file name tells it. 0 when sys is not there yet. */
static uint32_t read_hexversion(struct runtime *runtime) {
    remote_addr interp = 0, sysdict = 0, value = 0;
    uint64_t hexversion = 0;
    if (interp_first(runtime, &interp) != STATUS_OK || interp == 0 ||
        memory_read_u64(runtime->live, interp + runtime->layout.interp.sysdict, &sysdict) != STATUS_OK ||
        sysdict == 0 || dict_find_text(runtime, sysdict, "hexversion", &value) != STATUS_OK ||
        long_read_u64(runtime, value, &hexversion) != STATUS_OK)
        return 0;
    return hexversion > UINT32_MAX ? 0 : (uint32_t)hexversion;
}

static bool same_minor(uint32_t left, uint32_t right) {
    return left >> 16 == right >> 16;
}

/* What is known of the version before any layout is chosen. */
struct version_hint {
    uint32_t py_version; /* from Py_Version, exact; 0 when unknown */
    int minor;           /* 0 when unknown */
};

static bool table_is_candidate(const struct layout *table, const struct version_hint *hint) {
    return hint->py_version == 0 || same_minor(table->version, hint->py_version);
}

/* Tries the tables that the hint speaks for, or the others. A table is taken when it fits and sys.hexversion, read
 * through it, agrees with it. A runtime that is too young to have a sys module is taken on the hints alone. */
static bool try_tables(struct runtime *runtime, const struct version_hint *hint, bool hinted) {
    size_t count = 0;
    const struct layout *tables = layout_tables(&count);
    for (size_t i = 0; i < count; i++) {
        if (!table_is_candidate(&tables[i], hint) || (layout_minor(&tables[i]) == hint->minor) != hinted)
            continue;
        runtime->layout = tables[i];
        if (!fits(runtime))
            continue;
        uint32_t hexversion = runtime->empty ? 0 : read_hexversion(runtime);
        if (hexversion != 0 && same_minor(hexversion, tables[i].version)) {
            runtime->version = hexversion;
            return true;
        }
        if (hexversion == 0 && hinted) {
            runtime->version = hint->py_version;
            return true;
        }
    }
    return false;
}

static enum status open_by_tables(struct runtime *runtime, const struct runtime_symbols *symbols, struct error *error) {
    struct version_hint hint = {.minor = symbols->minor_hint};
    if (symbols->py_version != 0 && memory_read_u32(runtime->live, symbols->py_version, &hint.py_version) != STATUS_OK)
        hint.py_version = 0;
    if (hint.py_version != 0)
        hint.minor = (int)(hint.py_version >> 16 & 0xff);
    if (try_tables(runtime, &hint, true) || try_tables(runtime, &hint, false))
        return STATUS_OK;
    char version[24] = "an unknown version";
    if (hint.py_version != 0)
        runtime_format_version(hint.py_version, version);
    else if (hint.minor != 0)
        (void)snprintf(version, sizeof version, "3.%d", hint.minor);
    return error_set(error, STATUS_NOT_PYTHON, "its CPython (%s) is laid out in no way that strobe knows", version);
}

enum status runtime_open(struct runtime *runtime, struct memory *live, struct memory *objects,
                         const struct runtime_symbols *symbols, struct error *error) {
    *runtime = (struct runtime){.live = live, .objects = objects, .address = symbols->runtime};
    uint8_t table[DEBUG_OFFSETS_MAX_BYTES];
    if (memory_read(live, symbols->runtime, table, sizeof table) != STATUS_OK)
        return error_set(error, STATUS_NOT_PYTHON, "its Python runtime at 0x%llx cannot be read",
                         (unsigned long long)symbols->runtime);
    if (!debug_offsets_present(table, sizeof table))
        return open_by_tables(runtime, symbols, error);
    TRY(debug_offsets_decode(table, sizeof table, &runtime->layout, error));
    runtime->version = runtime->layout.version;
    if (!fits(runtime))
        return error_set(error, STATUS_NOT_PYTHON, "its list of interpreters does not agree with its debug offsets");
    return STATUS_OK;
}

void runtime_format_version(uint32_t version, char text[24]) {
    static const char levels[16][3] = {[0xa] = "a", [0xb] = "b", [0xc] = "rc"};
    unsigned level = version >> 4 & 0xf;
    unsigned major = version >> 24, minor = version >> 16 & 0xff, micro = version >> 8 & 0xff;
    if (levels[level][0] != '\0')
        (void)snprintf(text, 24, "%u.%u.%u%s%u", major, minor, micro, levels[level], version & 0xf);
    else
        (void)snprintf(text, 24, "%u.%u.%u", major, minor, micro);
}
