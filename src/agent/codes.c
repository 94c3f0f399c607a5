#include "agent/codes.h"

#include "agent/hot.h"
#include "agent/load.h"
#include "agent/probe.h"

#include <string.h>

enum {
    CODE_UNIT_BYTES = 2,
    MAX_BYTECODE_BYTES = 256 << 20, /* as in cpython/code.c */
    BUCKETS = 1024,
    POINTER_ALIGNMENT = 8,
    MAX_HEADER_BYTES = 256, /* sizeof(PyCodeObject) is 176 to 240 */
    ALL_DEATHS_MASK = 0x7fffffff,
};

static _Atomic uint32_t deaths_by_bucket[BUCKETS];
_Atomic uint32_t codes_deaths;
_Atomic uint64_t codes_generation;
static _Atomic(_Atomic uint64_t *) published_deaths;

typedef void deallocator(void *object);
static deallocator *original_deallocator;

/* Neighbours in a cache line or a pool differ in these bits. */
static uint64_t hash_of(uint64_t address) {
    return (address >> 4) * UINT64_C(0x9e3779b97f4a7c15);
}

static _Atomic uint32_t *bucket_of(uint64_t address) {
    return &deaths_by_bucket[(hash_of(address) >> 40) % BUCKETS];
}

static void count_death(void *code) {
    atomic_fetch_add(bucket_of((uint64_t)(uintptr_t)code), 1);
    atomic_fetch_add(&codes_deaths, 1);
    atomic_fetch_add(&codes_generation, CODES_GENERATION_STEP);
    _Atomic uint64_t *published = atomic_load_explicit(&published_deaths, memory_order_relaxed);
    if (published != NULL)
        atomic_fetch_add_explicit(published, 1, memory_order_relaxed);
    original_deallocator(code);
}

/* tp_name, tp_basicsize, tp_itemsize, tp_dealloc (Include/cpython/object.h, 3.8 to 3.15). Code objects' type is static
 * data, one for all interpreters of the process; its slot is read at each death and compared with nothing, since the
 * type has no subclasses. */
bool codes_watch(const struct agent_python *python) {
    uint64_t address = python->code_type + python->layout.type.tp_itemsize + sizeof(uint64_t);
    _Atomic(deallocator *) *slot = (_Atomic(deallocator *) *)(uintptr_t)address;
    deallocator *original = atomic_load(slot);
    if (original == count_death)
        return true;
    if (original == NULL || !probe_writable(address, sizeof original))
        return false;
    original_deallocator = original;
    atomic_store(slot, count_death);
    return true;
}

void codes_publish_deaths(_Atomic uint64_t *deaths) {
    atomic_store(&published_deaths, deaths);
}

/* At the birth of every thread: the entries, 32 KiB, wait until they are looked at. */
void codes_forget_ring(struct codes *codes) {
    memset(codes->stale, 1, sizeof codes->stale);
}

static void refresh(struct codes *codes, size_t set) {
    if (!codes->stale[set])
        return;
    codes->stale[set] = 0;
    for (size_t way = 0; way < CODES_WAYS; way++)
        codes->entries[set][way].defined = 0;
}

/* The beginning of an object, copied: a thread without the GIL looks at what a finalising one may be giving back. */
struct object {
    uint64_t address;
    uint8_t bytes[MAX_HEADER_BYTES];
};

static bool read_object(uint64_t address, size_t size_bytes, struct object *object) {
    object->address = address;
    return address != 0 && address % POINTER_ALIGNMENT == 0 && size_bytes <= sizeof object->bytes &&
           probe_copy(address, object->bytes, size_bytes);
}

static uint64_t word_of(const struct object *object, layout_offset offset) {
    return load_u64(object->bytes + offset);
}

static uint32_t half_of(const struct object *object, layout_offset offset) {
    return load_u32(object->bytes + offset);
}

static bool has_type(const struct object *object, const struct agent_python *python, uint64_t type, uint64_t flag) {
    uint64_t own = word_of(object, python->layout.object.ob_type), flags = 0;
    return own == type || (probe_copy(own + python->layout.type.tp_flags, &flags, sizeof flags) && (flags & flag) != 0);
}

/* What names, tables and bytecode are: memory of objects that live as long as the code object does. */
struct bytes {
    uint64_t address;
    uint64_t size_bytes;
};

static bool read_bytes_object(const struct agent_python *python, uint64_t address, struct bytes *bytes) {
    enum { BYTES_SUBCLASS = 1 << 27 }; /* Py_TPFLAGS_BYTES_SUBCLASS (Include/object.h) */
    const struct layout *layout = &python->layout;
    struct object object;
    if (!read_object(address, layout->bytes.ob_sval, &object) ||
        !has_type(&object, python, python->bytes_type, BYTES_SUBCLASS))
        return false;
    *bytes = (struct bytes){address + layout->bytes.ob_sval, word_of(&object, layout->object.ob_size)};
    return bytes->size_bytes <= MAX_BYTECODE_BYTES;
}

static uint16_t at_most_u16(uint32_t value) {
    return value < UINT16_MAX ? (uint16_t)value : UINT16_MAX;
}

/* 3.11 adds a frame's size up at each call (_PyEvalFramePushAndInit, Python/ceval.c 3.11). */
static uint32_t frame_words_of(const struct layout *layout, const struct object *code) {
    if (layout_has(layout->code.co_framesize))
        return half_of(code, layout->code.co_framesize);
    return half_of(code, layout->code.co_nlocalsplus) + half_of(code, layout->code.co_stacksize) +
           layout->frame.localsplus / POINTER_ALIGNMENT;
}

static bool read_extent(const struct agent_python *python, const struct object *code, struct code_entry *entry) {
    const struct layout *layout = &python->layout;
    if (!layout_has(layout->code.co_code_adaptive)) {
        struct bytes bytecode;
        if (!read_bytes_object(python, word_of(code, layout->code.co_code), &bytecode))
            return false;
        entry->bytecode = bytecode.address;
        entry->bytecode_bytes = (uint32_t)bytecode.size_bytes;
        return true;
    }
    uint64_t units = word_of(code, layout->object.ob_size);
    entry->bytecode = code->address + layout->code.co_code_adaptive;
    entry->bytecode_bytes = (uint32_t)(units * CODE_UNIT_BYTES);
    entry->first_traceable_units = at_most_u16(half_of(code, layout->code.co_firsttraceable));
    entry->frame_words = at_most_u16(frame_words_of(layout, code));
    return units <= MAX_BYTECODE_BYTES / CODE_UNIT_BYTES;
}

static bool read_code(const struct agent_python *python, uint64_t address, struct object *code) {
    return read_object(address, python->layout.code.size, code) &&
           word_of(code, python->layout.object.ob_type) == python->code_type;
}

static bool verify(const struct agent_python *python, uint64_t address, struct code_entry *entry) {
    struct object code;
    *entry = (struct code_entry){.address = address};
    /* Before it is looked at: what dies meanwhile is noticed the next time. */
    entry->all_deaths = atomic_load(&codes_deaths) & ALL_DEATHS_MASK;
    entry->deaths = atomic_load(bucket_of(address));
    return read_code(python, address, &code) && read_extent(python, &code, entry);
}

/* Whether the code object that was verified is still the one that stands there. */
static bool is_alive(struct code_entry *entry) {
    uint32_t all = atomic_load_explicit(&codes_deaths, memory_order_acquire) & ALL_DEATHS_MASK;
    if (entry->all_deaths == all)
        return true;
    if (atomic_load_explicit(bucket_of(entry->address), memory_order_acquire) != entry->deaths)
        return false;
    entry->all_deaths = all & ALL_DEATHS_MASK;
    return true;
}

static size_t set_of(uint64_t address) {
    return (size_t)(hash_of(address) >> 56) % CODES_SETS;
}

AGENT_HOT void codes_expect(const struct codes *codes, uint64_t address) {
    size_t set = set_of(address);
    hot_expect_bytes(codes->entries[set], sizeof codes->entries[set]);
    hot_expect_bytes(&codes->stale[set], sizeof codes->stale[set]);
}

AGENT_HOT struct code_entry *codes_get(struct codes *codes, const struct agent_python *python, uint64_t address) {
    size_t set = set_of(address);
    struct code_entry *entry = NULL;
    refresh(codes, set);
    for (size_t way = 0; way < CODES_WAYS; way++)
        if (codes->entries[set][way].address == address)
            entry = &codes->entries[set][way];
    if (entry != NULL && address != 0 && is_alive(entry))
        return entry;
    struct code_entry verified;
    if (!verify(python, address, &verified))
        return NULL;
    if (entry == NULL)
        entry = &codes->entries[set][++codes->replaced_last[set] % CODES_WAYS];
    *entry = verified;
    return entry;
}

struct string {
    struct bytes characters;
    uint8_t kind;
};

/* Cut between characters to at most max_bytes. kind 0: there is no such string. */
static struct string read_string(const struct agent_python *python, uint64_t address, uint64_t max_bytes) {
    enum { UNICODE_SUBCLASS = 1 << 28, KIND_MASK = 7 }; /* Py_TPFLAGS_UNICODE_SUBCLASS */
    const struct layout_unicode *fields = &python->layout.unicode;
    struct string none = {{0, 0}, 0};
    struct object object;
    if (!read_object(address, fields->ascii_size, &object) ||
        !has_type(&object, python, python->unicode_type, UNICODE_SUBCLASS))
        return none;
    uint32_t state = half_of(&object, fields->state);
    uint64_t length = word_of(&object, fields->length);
    uint8_t kind = (uint8_t)(state >> fields->kind_shift & KIND_MASK);
    bool compact = (state >> fields->compact_shift & 1) != 0, ascii = (state >> fields->ascii_shift & 1) != 0;
    if ((kind != 1 && kind != 2 && kind != 4) || (ascii && kind != 1))
        return none;
    uint64_t data = address + (ascii ? fields->ascii_size : fields->compact_size);
    if (!compact && !probe_copy(address + fields->data, &data, sizeof data))
        return none;
    uint64_t most = max_bytes / kind;
    return (struct string){{data, (length < most ? length : most) * kind}, kind};
}

/* What a WIRE_CODE has behind its struct, in this order. */
struct definition {
    struct object code;
    struct string name, qualname, filename;
    struct bytes table;
    uint32_t table_length;
};

static bool read_definition(const struct agent_python *python, uint64_t address, struct definition *definition) {
    const struct layout_code *fields = &python->layout.code;
    const struct object *code = &definition->code;
    *definition = (struct definition){.table = {0, 0}};
    if (!read_code(python, address, &definition->code))
        return false;
    definition->name = read_string(python, word_of(code, fields->co_name), WIRE_CODE_MAX_NAME_BYTES);
    definition->filename = read_string(python, word_of(code, fields->co_filename), WIRE_CODE_MAX_FILENAME_BYTES);
    if (layout_has(fields->co_qualname))
        definition->qualname = read_string(python, word_of(code, fields->co_qualname), WIRE_CODE_MAX_NAME_BYTES);
    if (!read_bytes_object(python, word_of(code, fields->co_linetable), &definition->table))
        definition->table = (struct bytes){0, 0};
    definition->table_length = (uint32_t)definition->table.size_bytes;
    if (definition->table.size_bytes > WIRE_CODE_MAX_TABLE_BYTES)
        definition->table.size_bytes = 0;
    return true;
}

static size_t padded(uint64_t size_bytes) {
    return ((size_t)size_bytes + 7) & ~(size_t)7;
}

static size_t record_bytes(const struct definition *definition) {
    return sizeof(struct wire_code) + padded(definition->name.characters.size_bytes) +
           padded(definition->qualname.characters.size_bytes) + padded(definition->filename.characters.size_bytes) +
           padded(definition->table.size_bytes);
}

/* Moves *to on. What cannot be read is zero. */
static void put(uint8_t **to, const struct bytes *bytes) {
    size_t size_bytes = (size_t)bytes->size_bytes, room = padded(bytes->size_bytes);
    if (size_bytes == 0)
        return;
    memset(*to + room - 8, 0, 8);
    if (!probe_copy(bytes->address, *to, size_bytes))
        memset(*to, 0, size_bytes);
    *to += room;
}

static void fill(struct wire_code *record, const struct agent_python *python, const struct code_entry *entry,
                 const struct definition *definition) {
    const struct layout_code *fields = &python->layout.code;
    const struct object *code = &definition->code;
    record->address = entry->address;
    record->bytecode_bytes = entry->bytecode_bytes;
    record->first_traceable_bytes = entry->first_traceable_units * CODE_UNIT_BYTES;
    record->first_line = load_i32(code->bytes + fields->co_firstlineno);
    record->flags = half_of(code, fields->co_flags);
    record->name_kind = definition->name.kind;
    record->qualname_kind = definition->qualname.kind;
    record->filename_kind = definition->filename.kind;
    record->unused = 0;
    record->name_bytes = (uint32_t)definition->name.characters.size_bytes;
    record->qualname_bytes = (uint32_t)definition->qualname.characters.size_bytes;
    record->filename_bytes = (uint32_t)definition->filename.characters.size_bytes;
    record->table_bytes = (uint32_t)definition->table.size_bytes;
    record->table_length = definition->table_length;
    record->table_address = definition->table.address;
    uint8_t *to = (uint8_t *)(record + 1);
    put(&to, &definition->name.characters);
    put(&to, &definition->qualname.characters);
    put(&to, &definition->filename.characters);
    put(&to, &definition->table);
}

bool codes_define(struct codes *codes, const struct agent_python *python, uint64_t address, struct wire_ring *ring,
                  bool *defined_now) {
    struct definition definition;
    struct code_entry *entry = codes_get(codes, python, address);
    *defined_now = false;
    if (entry == NULL)
        return false;
    if (entry->defined)
        return true;
    if (!read_definition(python, address, &definition))
        return false;
    uint64_t position = wire_ring_position(ring);
    struct wire_code *record = wire_ring_reserve(ring, &position, WIRE_CODE, record_bytes(&definition));
    if (record == NULL)
        return false;
    fill(record, python, entry, &definition);
    wire_ring_commit(ring, position);
    entry->defined = 1;
    *defined_now = true;
    return true;
}
