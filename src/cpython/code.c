#include "cpython/code.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "cpython/str.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_NAME_CHARACTERS = 1 << 20,
    MAX_LINETABLE_BYTES = 16 << 20,
    MAX_BYTECODE_BYTES = 256 << 20,
    /* What each instruction can do is known of functions up to this size. */
    MAX_STUDIED_BYTECODE_BYTES = 16 << 20,
    MAX_TLBC_ENTRIES = 1 << 20,
    /* sizeof(PyCodeObject) is 200 to 220 bytes, 3.8 to 3.15. */
    MAX_HEADER_BYTES = 1024,
    /* Of all code objects together. A hundred thousand real ones take a tenth of it. */
    MAX_CACHE_BYTES = 1 << 29,
    CODE_UNIT_BYTES = 2,
    /* A program that dropped code will do so again for so many epochs. */
    REUSED_EPOCHS = 500,
};

void code_cache_init(struct code_cache *cache, struct runtime *runtime) {
    *cache = (struct code_cache){.runtime = runtime};
}

void code_cache_release(struct code_cache *cache) {
    map_release(&cache->by_address);
    arena_release(&cache->arena);
    *cache = (struct code_cache){
        .runtime = cache->runtime, .is_sampling = cache->is_sampling, .last_serial = cache->last_serial};
}

/* Code objects are told from others by their type; the type by its name, the first time. Types are static, so all
 * interpreters of a process share this one. */
static enum status check_type(struct code_cache *cache, remote_addr type) {
    if (type == cache->code_type && type != 0)
        return STATUS_OK;
    struct runtime *runtime = cache->runtime;
    remote_addr name = 0;
    char text[8];
    if (cache->code_type != 0)
        return STATUS_TORN;
    TRY(memory_read_u64(runtime->objects, type + runtime->layout.type.tp_name, &name));
    TRY(memory_read_cstring(runtime->objects, name, text, sizeof text));
    if (strcmp(text, "code") != 0)
        return STATUS_TORN;
    cache->code_type = type;
    return STATUS_OK;
}

static enum status read_name(struct code_cache *cache, remote_addr address, const char **name) {
    struct buffer text;
    buffer_init(&text, (size_t)MAX_NAME_CHARACTERS * 12);
    enum status status = string_read(cache->runtime, address, MAX_NAME_CHARACTERS, &text, NULL);
    if (status == STATUS_OK) {
        *name = arena_copy_text(&cache->arena, buffer_text(&text), text.size_bytes);
        status = *name != NULL ? STATUS_OK : STATUS_FAILED;
    }
    cache->size_bytes += text.size_bytes;
    buffer_release(&text);
    return status;
}

static enum status read_linetable(struct code_cache *cache, remote_addr address, struct code *code) {
    struct runtime *runtime = cache->runtime;
    const struct layout *layout = &runtime->layout;
    uint64_t size_bytes = 0;
    TRY(memory_read_u64(runtime->objects, address + layout->object.ob_size, &size_bytes));
    if (size_bytes > MAX_LINETABLE_BYTES)
        return STATUS_TORN;
    /* Into the arena, which cannot give back, only what could be read. */
    uint8_t *bytes = malloc((size_t)size_bytes + 1);
    if (bytes == NULL)
        return STATUS_FAILED;
    enum status status = memory_read(runtime->objects, address + layout->bytes.ob_sval, bytes, (size_t)size_bytes);
    if (status == STATUS_OK) {
        code->lines.bytes = (uint8_t *)arena_copy_text(&cache->arena, (char *)bytes, (size_t)size_bytes);
        code->lines.size_bytes = (size_t)size_bytes;
        code->lines.format = linetable_format_of(layout_minor(layout));
        cache->size_bytes += (size_t)size_bytes;
        status = code->lines.bytes != NULL ? STATUS_OK : STATUS_FAILED;
    }
    free(bytes);
    return status;
}

/* Bytecode is part of the code object from 3.11 on, a bytes object of its own before. */
static enum status read_bytecode_extent(struct code_cache *cache, const uint8_t *header, struct code *code) {
    const struct layout *layout = &cache->runtime->layout;
    uint64_t size = 0;
    if (!layout_has(layout->code.co_code_adaptive)) {
        remote_addr bytes = load_u64(header + layout->code.co_code);
        TRY(memory_read_u64(cache->runtime->objects, bytes + layout->object.ob_size, &size));
    } else {
        size = load_u64(header + layout->object.ob_size);
        size = size > MAX_BYTECODE_BYTES ? size : size * CODE_UNIT_BYTES;
        code->bytecode = code->address + layout->code.co_code_adaptive;
        code->first_traceable_bytes = load_u32(header + layout->code.co_firsttraceable) * CODE_UNIT_BYTES;
    }
    if (size > MAX_BYTECODE_BYTES)
        return STATUS_TORN;
    code->bytecode_bytes = (uint32_t)size;
    return STATUS_OK;
}

/* co_framesize is in words; 3.11 adds it up at each call (_PyEvalFramePushAndInit, Python/ceval.c 3.11). */
static void read_frame_size(const struct layout *layout, const uint8_t *header, struct code *code) {
    enum { WORD_BYTES = 8, MAX_WORDS = 1 << 24 };
    code->nlocalsplus = load_u32(header + layout->code.co_nlocalsplus);
    uint32_t words =
        layout_has(layout->code.co_framesize)
            ? load_u32(header + layout->code.co_framesize)
            : code->nlocalsplus + load_u32(header + layout->code.co_stacksize) + layout->frame.localsplus / WORD_BYTES;
    code->frame_bytes = words < MAX_WORDS ? words * WORD_BYTES : 0;
}

static enum status decode(struct code_cache *cache, const uint8_t *header, struct code *code) {
    const struct layout_code *fields = &cache->runtime->layout.code;
    code->flags = load_u32(header + fields->co_flags);
    code->lines.first_line = load_i32(header + fields->co_firstlineno);
    code->argument_count = load_u32(header + fields->co_argcount) + load_u32(header + fields->co_kwonlyargcount) +
                           ((code->flags & CODE_VARARGS) != 0) + ((code->flags & CODE_VARKEYWORDS) != 0);
    if (layout_has(fields->co_nlocalsplus))
        read_frame_size(&cache->runtime->layout, header, code);
    if (layout_has(fields->co_tlbc))
        code->tlbc = load_u64(header + fields->co_tlbc);
    TRY(read_bytecode_extent(cache, header, code));
    code->name_address = load_u64(header + fields->co_name);
    TRY(read_name(cache, code->name_address, &code->name));
    TRY(read_name(cache, load_u64(header + fields->co_filename), &code->filename));
    if (layout_has(fields->co_qualname))
        TRY(read_name(cache, load_u64(header + fields->co_qualname), &code->qualname));
    return read_linetable(cache, load_u64(header + fields->co_linetable), code);
}

/* A code object that was just made can have its names on pages that were copied before it was: nothing of it is read
 * through a cache. */
static enum status decode_live(struct code_cache *cache, const uint8_t *header, struct code *code) {
    struct runtime *runtime = cache->runtime;
    struct memory *objects = runtime->objects;
    runtime->objects = runtime->live;
    enum status status = decode(cache, header, code);
    runtime->objects = objects;
    return status;
}

static enum status read_header(struct code_cache *cache, remote_addr address, uint8_t *header) {
    /* All fields lie in it: debug_offsets_decode saw to that, the compiler for the tables. */
    size_t size_bytes = cache->runtime->layout.code.size;
    if (size_bytes > MAX_HEADER_BYTES)
        return STATUS_LIMIT;
    return memory_read(cache->runtime->live, address, header, size_bytes);
}

/* Two code objects at one address that agree in all of this are the same source, or as good as that. */
static uint64_t fingerprint_of(const struct layout *layout, const uint8_t *header) {
    const layout_offset fields[] = {layout->code.co_filename, layout->code.co_name, layout->code.co_linetable};
    uint64_t hash = load_u32(header + layout->code.co_firstlineno);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        hash = (hash ^ load_u64(header + fields[i])) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ load_u64(header + layout->object.ob_size);
}

/* Whether the object with this header still has references. What was freed has none, or the allocator's pointer where
 * they were counted (Include/object.h and refcount.h; versions not known yet may count in another way):
 *
 *   3.8 to 3.13           | ob_refcnt: 64 bits, up to 2^32 - 1 for what is immortal | ob_type
 *   3.14 and 3.15         | ob_refcnt: 32 | ob_overflow: 16, 0 | ob_flags: 16 | ob_type
 *   free-threaded         | ob_tid: 64 | flags: 32 | ob_ref_local: 32 | ob_ref_shared: 64, 2 of them flags | ob_type */
static bool is_alive(const struct layout *layout, const uint8_t *header) {
    enum { NEWEST_KNOWN = 15, FLAGS_SINCE = 14, SHARED_FLAG_BITS = 2 };
    const uint8_t *type = header + layout->object.ob_type;
    uint64_t counted = load_u64(type - sizeof counted);
    if (layout_minor(layout) > NEWEST_KNOWN)
        return true;
    if (layout->free_threaded)
        return load_u32(type - sizeof counted - sizeof(uint32_t)) != 0 || (int64_t)counted >> SHARED_FLAG_BITS > 0;
    if (layout_minor(layout) >= FLAGS_SINCE)
        counted &= UINT64_C(0xffffffffffff);
    return counted != 0 && counted <= UINT32_MAX;
}

/* So long after its frame was seen, what has become of a code object's place is not known: strobe was interrupted. */
static const uint64_t LATE_NS = 100 * NS_PER_US;

/* Up to 3.10 frames are read link by link, and for code that runs once (3.8) two looks of a hundred would come too
 * late. */
static bool must_live(const struct code_cache *cache) {
    return !cache->is_sampling || layout_has(cache->runtime->layout.frame.size) ||
           clock_monotonic_ns() >= cache->frames_ns + LATE_NS;
}

static enum status read_code(struct code_cache *cache, remote_addr address, struct code **result) {
    uint8_t header[MAX_HEADER_BYTES] = {0};
    const struct layout *layout = &cache->runtime->layout;
    if (cache->arena.size_bytes > MAX_CACHE_BYTES)
        return STATUS_LIMIT;
    TRY(read_header(cache, address, header));
    TRY(check_type(cache, load_u64(header + layout->object.ob_type)));
    struct code *code = arena_take(&cache->arena, sizeof *code);
    if (code == NULL)
        return STATUS_FAILED;
    cache->size_bytes += sizeof *code;
    code->address = address;
    code->fingerprint = fingerprint_of(layout, header);
    code->checked_epoch = cache->epoch;
    TRY(decode_live(cache, header, code));
    /* It may have died since its frame was seen: its header may still be whole then, when its names are others'. */
    TRY(read_header(cache, address, header));
    if (fingerprint_of(layout, header) != code->fingerprint || (must_live(cache) && !is_alive(layout, header)))
        return STATUS_TORN;
    code->serial = ++cache->last_serial;
    *result = code;
    return STATUS_OK;
}

void code_cache_start_epoch(struct code_cache *cache) {
    cache->epoch++;
}

/* Whether the code object that was decoded from this address still stands there. */
static bool is_current(struct code_cache *cache, struct code *code) {
    if (code->checked_epoch == cache->epoch)
        return true;
    uint8_t header[MAX_HEADER_BYTES] = {0};
    if (read_header(cache, code->address, header) != STATUS_OK ||
        fingerprint_of(&cache->runtime->layout, header) != code->fingerprint) {
        cache->reused = REUSED_EPOCHS;
        cache->dead_count++;
        return false;
    }
    code->checked_epoch = cache->epoch;
    return true;
}

enum status code_cache_get(struct code_cache *cache, remote_addr address, const struct code **result) {
    uint64_t known = 0;
    if (map_get(&cache->by_address, address, &known) && is_current(cache, (struct code *)(uintptr_t)known)) {
        *result = (const struct code *)(uintptr_t)known;
        return STATUS_OK;
    }
    struct code *code = NULL;
    TRY(read_code(cache, address, &code));
    TRY(map_set(&cache->by_address, address, (uint64_t)(uintptr_t)code));
    *result = code;
    return STATUS_OK;
}

static_assert((int)OPCODE_HIDDEN <= (int)CODE_STEP_FAMILY, "families have so many bits");

static uint8_t step_of(const struct opcode *opcode, uint8_t argument) {
    bool enters = opcode->enters && (!opcode->subscribes || argument == OPCODE_SUBSCRIPTION);
    unsigned cut = argument < CODE_STEP_ARGUMENT ? argument : CODE_STEP_ARGUMENT;
    return (uint8_t)(opcode->family | cut << CODE_STEP_ARGUMENT_SHIFT | (enters ? CODE_STEP_ENTERS : 0));
}

/* Notes for each unit what its instruction can do; false when an instruction is hidden, for then its caches are, too.
 */
static bool note_steps(const struct opcode *table, uint8_t *steps, const uint8_t *bytecode, size_t units) {
    for (size_t i = 0; i < units;) {
        const struct opcode *opcode = &table[bytecode[i * CODE_UNIT_BYTES]];
        uint8_t step = step_of(opcode, bytecode[i * CODE_UNIT_BYTES + 1]);
        if (opcode->family == OPCODE_HIDDEN || opcode->family == OPCODE_INVALID)
            return false;
        for (size_t end = i + 1 + opcode->caches; i < end && i < units; i++)
            steps[i] = step;
    }
    return true;
}

/* The same for 3.8 to 3.10, which have no caches: what is hidden hides nothing else. The last instruction (f_lasti) of
 * a frame whose instruction has EXTENDED_ARG prefixes is the first of these (Python/ceval.c 3.10): they are what they
 * prefix. */
static void note_object_steps(const struct opcode *table, uint8_t *steps, const uint8_t *bytecode, size_t units) {
    enum { EXTENDED_ARG = 144 };
    for (size_t i = units; i-- > 0;) {
        uint8_t opcode = bytecode[i * CODE_UNIT_BYTES];
        if (opcode == EXTENDED_ARG && i + 1 < units)
            steps[i] = steps[i + 1];
        else
            steps[i] = table[opcode].family == OPCODE_INVALID ? OPCODE_HIDDEN : table[opcode].family;
    }
}

/* The address of the bytecode, which is a bytes object of its own up to 3.10. */
static enum status find_bytecode(struct code_cache *cache, const struct code *code, remote_addr *address) {
    const struct layout *layout = &cache->runtime->layout;
    *address = code->bytecode;
    if (code->bytecode != 0)
        return STATUS_OK;
    TRY(memory_read_u64(cache->runtime->live, code->address + layout->code.co_code, address));
    *address += layout->bytes.ob_sval;
    return STATUS_OK;
}

static enum status read_bytecode(struct code_cache *cache, const struct code *code, uint8_t *bytecode) {
    remote_addr address = 0;
    TRY(find_bytecode(cache, code, &address));
    return memory_read(cache->runtime->live, address, bytecode, code->bytecode_bytes);
}

static void make_steps(struct code_cache *cache, struct code *code, const uint8_t *bytecode) {
    const struct opcode *table = opcode_table((uint32_t)layout_minor(&cache->runtime->layout));
    size_t units = code->bytecode_bytes / CODE_UNIT_BYTES;
    uint8_t *steps = arena_take(&cache->arena, units + 1);
    if (steps == NULL)
        return;
    cache->size_bytes += units;
    if (code->bytecode == 0)
        note_object_steps(table, steps, bytecode, units);
    else if (!note_steps(table, steps, bytecode, units))
        return;
    code->steps = steps;
}

/* What a code object claims of its size is not believed without end: memory is taken for it before it is read. */
static bool is_too_much_to_study(const struct code_cache *cache, const struct code *code) {
    return code->bytecode_bytes > MAX_STUDIED_BYTECODE_BYTES || cache->arena.size_bytes > MAX_CACHE_BYTES;
}

static void read_steps(struct code_cache *cache, struct code *code) {
    code->steps_known = true;
    if (is_too_much_to_study(cache, code))
        return;
    uint8_t *bytecode = malloc(code->bytecode_bytes + 1);
    if (bytecode != NULL && read_bytecode(cache, code, bytecode) == STATUS_OK)
        make_steps(cache, code, bytecode);
    free(bytecode);
}

void code_cache_study(struct code_cache *cache, const struct code *code) {
    /* The cache made it and may add to it. */
    read_steps(cache, (struct code *)(uintptr_t)code);
}

static void make_callee_slots(struct code_cache *cache, struct code *code, const uint8_t *bytecode) {
    size_t units = code->bytecode_bytes / CODE_UNIT_BYTES;
    struct callee_slot *slots = arena_take(&cache->arena, (units + 1) * sizeof slots[0]);
    if (slots == NULL)
        return;
    cache->size_bytes += units * sizeof slots[0];
    if (callee_slots_find((uint32_t)layout_minor(&cache->runtime->layout), bytecode, units, slots) == STATUS_OK)
        code->callee_slots = slots;
}

static void find_callee_slots(struct code_cache *cache, struct code *code) {
    code->callee_slots_known = true;
    if (is_too_much_to_study(cache, code))
        return;
    uint8_t *bytecode = malloc(code->bytecode_bytes + 1);
    if (bytecode != NULL && read_bytecode(cache, code, bytecode) == STATUS_OK)
        make_callee_slots(cache, code, bytecode);
    free(bytecode);
}

struct callee_slot code_cache_callee_slot(struct code_cache *cache, const struct code *code,
                                          int32_t instruction_bytes) {
    if (!code->callee_slots_known)
        find_callee_slots(cache, (struct code *)(uintptr_t)code);
    if (code->callee_slots == NULL || instruction_bytes < 0 || (uint32_t)instruction_bytes >= code->bytecode_bytes)
        return (struct callee_slot){0};
    return code->callee_slots[instruction_bytes / CODE_UNIT_BYTES];
}

void code_position(const struct code *code, uint32_t instruction_bytes, struct source_position *position) {
    struct code *own = (struct code *)(uintptr_t)code;
    if (code->last_asked != instruction_bytes + 1 || code->last_asked == 0) {
        (void)linetable_lookup(&code->lines, instruction_bytes, &own->last_position);
        own->last_asked = instruction_bytes + 1;
    }
    *position = code->last_position;
}

enum status code_bytecode_start(struct runtime *runtime, const struct code *code, int32_t tlbc_index,
                                remote_addr *start) {
    *start = code->bytecode;
    if (tlbc_index <= 0 || code->tlbc == 0)
        return STATUS_OK;
    /* _PyCodeArray { Py_ssize_t size; char *entries[]; } (Include/cpython/code.h 3.14); a null entry is a thread that
     * has no copy and runs the code object's own. The array grows, so it is read live. */
    uint64_t count = 0, entry = 0;
    TRY(memory_read_u64(runtime->live, code->tlbc, &count));
    if (count > MAX_TLBC_ENTRIES || (uint64_t)tlbc_index >= count)
        return STATUS_TORN;
    TRY(memory_read_u64(runtime->live, code->tlbc + sizeof(uint64_t) * (1 + (uint64_t)tlbc_index), &entry));
    if (entry != 0)
        *start = entry;
    return STATUS_OK;
}
