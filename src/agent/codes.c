#include "agent/codes.h"

#include "agent/load.h"
#include "agent/probe.h"

#include <string.h>

enum {
    CODE_UNIT_BYTES = 2,
    MAX_BYTECODE_BYTES = 256 << 20, /* as in cpython/code.c */
    BUCKETS = 1024,
    POINTER_ALIGNMENT = 8,
    ALL_DEATHS_MASK = 0x7fffffff,
};

static _Atomic uint32_t deaths_by_bucket[BUCKETS];
static _Atomic uint32_t all_deaths;
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
    atomic_fetch_add(&all_deaths, 1);
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
    if (original == NULL)
        return false;
    if (original == count_death)
        return true;
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

/* What names, tables and bytecode are read from: objects of the code object's own, which live as long as it does. */
struct bytes {
    uint64_t address;
    uint64_t size_bytes;
};

static bool has_type(uint64_t object, const struct agent_python *python, uint64_t type, uint64_t subclass_flag) {
    uint64_t own = load_u64(pointer_to(object + python->layout.object.ob_type));
    if (own == type)
        return true;
    return probe_readable(own, python->layout.type.size) &&
           (load_u64(pointer_to(own + python->layout.type.tp_flags)) & subclass_flag) != 0;
}

static bool read_bytes_object(const struct agent_python *python, uint64_t object, struct bytes *bytes) {
    enum { BYTES_SUBCLASS = 1 << 27 }; /* Py_TPFLAGS_BYTES_SUBCLASS (Include/object.h) */
    const struct layout *layout = &python->layout;
    if (object % POINTER_ALIGNMENT != 0 || !probe_readable(object, layout->bytes.ob_sval) ||
        !has_type(object, python, python->bytes_type, BYTES_SUBCLASS))
        return false;
    *bytes = (struct bytes){object + layout->bytes.ob_sval, load_u64(pointer_to(object + layout->object.ob_size))};
    return bytes->size_bytes <= MAX_BYTECODE_BYTES;
}

static bool read_extent(const struct agent_python *python, struct code_entry *entry) {
    const struct layout *layout = &python->layout;
    if (!layout_has(layout->code.co_code_adaptive)) {
        struct bytes bytecode;
        if (!read_bytes_object(python, load_u64(pointer_to(entry->address + layout->code.co_code)), &bytecode))
            return false;
        entry->bytecode = bytecode.address;
        entry->bytecode_bytes = (uint32_t)bytecode.size_bytes;
        return true;
    }
    uint64_t units = load_u64(pointer_to(entry->address + layout->object.ob_size));
    entry->bytecode = entry->address + layout->code.co_code_adaptive;
    entry->bytecode_bytes = (uint32_t)(units * CODE_UNIT_BYTES);
    entry->first_traceable_bytes =
        load_u32(pointer_to(entry->address + layout->code.co_firsttraceable)) * CODE_UNIT_BYTES;
    return units <= MAX_BYTECODE_BYTES / CODE_UNIT_BYTES;
}

static bool verify(const struct agent_python *python, uint64_t address, struct code_entry *entry) {
    *entry = (struct code_entry){.address = address};
    entry->all_deaths = atomic_load(&all_deaths) & ALL_DEATHS_MASK;
    entry->deaths = atomic_load(bucket_of(address));
    return address != 0 && address % POINTER_ALIGNMENT == 0 && probe_readable(address, python->layout.code.size) &&
           load_u64(pointer_to(address + python->layout.object.ob_type)) == python->code_type &&
           read_extent(python, entry);
}

/* Whether the code object that was verified is still the one that stands there. */
static bool is_alive(struct code_entry *entry) {
    uint32_t all = atomic_load_explicit(&all_deaths, memory_order_acquire) & ALL_DEATHS_MASK;
    if (entry->all_deaths == all)
        return true;
    if (atomic_load_explicit(bucket_of(entry->address), memory_order_acquire) != entry->deaths)
        return false;
    entry->all_deaths = all & ALL_DEATHS_MASK;
    return true;
}

struct code_entry *codes_get(struct codes *codes, const struct agent_python *python, uint64_t address) {
    size_t set = (size_t)(hash_of(address) >> 56) % CODES_SETS;
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

static size_t padded(size_t size_bytes) {
    return (size_bytes + 7) & ~(size_t)7;
}

struct string {
    struct bytes characters;
    uint8_t kind;
};

/* Cut between characters to at most max_bytes. kind 0: there is no such string. */
static struct string read_string(const struct agent_python *python, uint64_t object, uint64_t max_bytes) {
    enum { UNICODE_SUBCLASS = 1 << 28, KIND_MASK = 7 }; /* Py_TPFLAGS_UNICODE_SUBCLASS */
    const struct layout_unicode *fields = &python->layout.unicode;
    struct string none = {{0, 0}, 0};
    if (object == 0 || object % POINTER_ALIGNMENT != 0 || !probe_readable(object, fields->compact_size) ||
        !has_type(object, python, python->unicode_type, UNICODE_SUBCLASS))
        return none;
    uint32_t state = load_u32(pointer_to(object + fields->state));
    uint64_t length = load_u64(pointer_to(object + fields->length));
    uint32_t kind = state >> fields->kind_shift & KIND_MASK;
    bool compact = (state >> fields->compact_shift & 1) != 0, ascii = (state >> fields->ascii_shift & 1) != 0;
    if ((kind != 1 && kind != 2 && kind != 4) || (ascii && kind != 1))
        return none;
    uint64_t data = object + (ascii ? fields->ascii_size : fields->compact_size);
    if (!compact) {
        if (!probe_readable(object + fields->data, sizeof data))
            return none;
        data = load_u64(pointer_to(object + fields->data));
    }
    uint64_t bytes = length < max_bytes / kind ? length * kind : max_bytes / kind * kind;
    if (bytes > 0 && !probe_readable(data, bytes))
        return none;
    return (struct string){{data, bytes}, (uint8_t)kind};
}

/* What a WIRE_CODE has behind its struct, in this order. */
struct definition {
    struct string name, qualname, filename;
    struct bytes table;
    uint32_t table_length;
};

static struct definition read_definition(const struct agent_python *python, uint64_t address) {
    const struct layout_code *fields = &python->layout.code;
    struct definition definition = {
        .name = read_string(python, load_u64(pointer_to(address + fields->co_name)), WIRE_CODE_MAX_NAME_BYTES),
        .filename =
            read_string(python, load_u64(pointer_to(address + fields->co_filename)), WIRE_CODE_MAX_FILENAME_BYTES),
    };
    if (layout_has(fields->co_qualname))
        definition.qualname =
            read_string(python, load_u64(pointer_to(address + fields->co_qualname)), WIRE_CODE_MAX_NAME_BYTES);
    if (!read_bytes_object(python, load_u64(pointer_to(address + fields->co_linetable)), &definition.table))
        definition.table = (struct bytes){0, 0};
    definition.table_length = (uint32_t)definition.table.size_bytes;
    if (definition.table.size_bytes > WIRE_CODE_MAX_TABLE_BYTES ||
        (definition.table.size_bytes > 0 &&
         !probe_readable(definition.table.address, (size_t)definition.table.size_bytes)))
        definition.table.size_bytes = 0;
    return definition;
}

static uint8_t *put(uint8_t *to, const struct bytes *bytes) {
    if (bytes->size_bytes > 0)
        memcpy(to, pointer_to(bytes->address), (size_t)bytes->size_bytes);
    size_t size = padded((size_t)bytes->size_bytes);
    memset(to + bytes->size_bytes, 0, size - (size_t)bytes->size_bytes);
    return to + size;
}

static void fill(struct wire_code *record, const struct agent_python *python, const struct code_entry *entry,
                 const struct definition *definition) {
    const struct layout_code *fields = &python->layout.code;
    record->address = entry->address;
    record->bytecode_bytes = entry->bytecode_bytes;
    record->first_traceable_bytes = entry->first_traceable_bytes;
    record->first_line = load_i32(pointer_to(entry->address + fields->co_firstlineno));
    record->flags = load_u32(pointer_to(entry->address + fields->co_flags));
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
    to = put(to, &definition->name.characters);
    to = put(to, &definition->qualname.characters);
    to = put(to, &definition->filename.characters);
    (void)put(to, &definition->table);
}

bool codes_define(struct codes *codes, const struct agent_python *python, uint64_t address, struct wire_ring *ring,
                  bool *defined_now) {
    *defined_now = false;
    struct code_entry *entry = codes_get(codes, python, address);
    if (entry == NULL)
        return false;
    if (entry->defined)
        return true;
    struct definition definition = read_definition(python, address);
    uint64_t position = wire_ring_position(ring);
    size_t size_bytes = sizeof(struct wire_code) + padded((size_t)definition.name.characters.size_bytes) +
                        padded((size_t)definition.qualname.characters.size_bytes) +
                        padded((size_t)definition.filename.characters.size_bytes) +
                        padded((size_t)definition.table.size_bytes);
    struct wire_code *record = wire_ring_reserve(ring, &position, WIRE_CODE, size_bytes);
    if (record == NULL)
        return false;
    fill(record, python, entry, &definition);
    wire_ring_commit(ring, position);
    entry->defined = 1;
    *defined_now = true;
    return true;
}
