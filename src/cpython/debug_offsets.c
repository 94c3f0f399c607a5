/* Reads `_Py_DebugOffsets`, with which CPython 3.13 and later describe themselves: Include/internal/pycore_runtime.h
 * of 3.13, Include/internal/pycore_debug_offsets.h since. The table is an array of u64 behind an 8-byte cookie. Which
 * u64 means what depends on the minor version only; what they hold may change with each release. */
#include "cpython/debug_offsets.h"

#include "base/bytes.h"

#include <inttypes.h>
#include <string.h>

#define COOKIE "xdebugpy"
enum {
    OLDEST_MINOR = 13,
    PREAMBLE_BYTES = 24, /* cookie, version, free_threaded */
    HEADER_BYTES = 16,   /* sizeof(PyObject); what the table says of it is checked in debug_offsets_derive.c */
    FREE_THREADED_HEADER_BYTES = 32,
};

enum kind {
    SIZE,          /* begins a group: the size of the struct that the offsets behind it lie in */
    OBJECT_SIZE,   /* the same; the struct begins with an object header, so that none lies in there */
    UNSIZED,       /* begins a group that the table gives no size for */
    OFFSET,        /* of `width` bytes in the group's struct */
    FREE_THREADED, /* the same, but 0 and without a meaning in a build with the GIL */
    SKIPPED,       /* not needed: strobe has no field for it */
};

/* One u64 of the table. From one minor version to the next, columns were only ever inserted. */
struct column {
    const char *name;
    uint16_t target; /* offset in struct debug_table of the layout_offset to fill */
    uint8_t since;   /* minor version */
    uint8_t kind;
    uint32_t width; /* of sizes: the largest that is believable */
};

/* The largest sizes believed: many times those known (3.15: runtime 330 KiB, interpreter 260 KiB, thread 0.5 KiB). */
#define STATE_BYTES (16U << 20)
#define OBJECT_BYTES (64U << 10)

/* A line for each u64. */
/* clang-format off */
#define TARGET(path) #path, offsetof(struct debug_table, path)
#define GROUP(since, path, limit) {TARGET(path), since, SIZE, limit}
#define OBJECT(since, path) {TARGET(path), since, OBJECT_SIZE, OBJECT_BYTES}
#define FIELD(since, path, width) {TARGET(path), since, OFFSET, width}
#define FREE_THREADED_FIELD(since, path, width) {TARGET(path), since, FREE_THREADED, width}
#define SKIP(since, path) {#path, 0, since, SKIPPED, 0}
#define UNSIZED_GROUP(since, limit) {"", 0, since, UNSIZED, limit}

#define POINTER 8
#define INT 4

static const struct column columns[] = {
    GROUP(13, layout.runtime.size, STATE_BYTES),
    FIELD(13, layout.runtime.finalizing, POINTER),
    FIELD(13, layout.runtime.interpreters_head, POINTER),

    GROUP(13, layout.interp.size, STATE_BYTES),
    FIELD(13, layout.interp.id, 8),
    FIELD(13, layout.interp.next, POINTER),
    FIELD(13, layout.interp.threads_head, POINTER),
    FIELD(14, layout.interp.threads_main, POINTER),
    FIELD(13, interp.gc, 8),
    FIELD(13, layout.interp.modules, POINTER),
    FIELD(13, layout.interp.sysdict, POINTER),
    FIELD(13, layout.interp.builtins, POINTER),
    FIELD(13, layout.interp.ceval_gil, POINTER),
    FIELD(13, interp.gil, 0),
    /* In struct _gil_runtime_state, where the two behind it are in PyInterpreterState. */
    FREE_THREADED_FIELD(13, layout.gil.enabled, 0),
    FIELD(13, interp.gil_locked, INT),
    FIELD(13, interp.gil_last_holder, POINTER),
    FIELD(14, layout.interp.code_object_generation, 8),
    FREE_THREADED_FIELD(14, layout.interp.tlbc_generation, INT),

    GROUP(13, layout.thread.size, OBJECT_BYTES),
    FIELD(13, layout.thread.prev, POINTER),
    FIELD(13, layout.thread.next, POINTER),
    FIELD(13, layout.thread.interp, POINTER),
    FIELD(13, layout.thread.current_frame, POINTER),
    FIELD(15, layout.thread.base_frame, POINTER),
    FIELD(15, layout.thread.last_profiled_frame, POINTER),
    FIELD(15, layout.thread.last_profiled_frame_seq, 8),
    FIELD(13, layout.thread.thread_id, 8),
    FIELD(13, layout.thread.native_thread_id, 8),
    FIELD(13, layout.thread.datastack_chunk, POINTER),
    FIELD(13, layout.thread.status, INT),
    FIELD(15, layout.thread.holds_gil, INT),
    FIELD(15, layout.thread.gil_requested, INT),
    SKIP(15, thread_state.current_exception),
    SKIP(15, thread_state.exc_state),

    SKIP(15, err_stackitem.exc_value), /* a group of its own */

    GROUP(13, layout.frame.size, OBJECT_BYTES),
    FIELD(13, layout.frame.previous, POINTER),
    FIELD(13, layout.frame.f_executable, POINTER),
    FIELD(13, layout.frame.instr_ptr, POINTER),
    FIELD(13, layout.frame.localsplus, POINTER),
    FIELD(13, layout.frame.owner, 1),
    FIELD(14, layout.frame.stackpointer, POINTER),
    FREE_THREADED_FIELD(14, layout.frame.tlbc_index, INT),

    OBJECT(13, layout.code.size),
    FIELD(13, layout.code.co_filename, POINTER),
    FIELD(13, layout.code.co_name, POINTER),
    FIELD(13, layout.code.co_qualname, POINTER),
    FIELD(13, layout.code.co_linetable, POINTER),
    FIELD(13, layout.code.co_firstlineno, INT),
    FIELD(13, layout.code.co_argcount, INT),
    FIELD(13, layout.code.co_localsplusnames, POINTER),
    FIELD(13, layout.code.co_localspluskinds, POINTER),
    FIELD(13, layout.code.co_code_adaptive, 1),
    FREE_THREADED_FIELD(14, layout.code.co_tlbc, POINTER),

    GROUP(13, layout.object.size, OBJECT_BYTES),
    FIELD(13, layout.object.ob_type, POINTER),

    OBJECT(13, layout.type.size),
    FIELD(13, layout.type.tp_name, POINTER),
    SKIP(13, type_object.tp_repr),
    FIELD(13, layout.type.tp_flags, 8),
    FIELD(15, layout.type.tp_basicsize, 8),
    FIELD(15, layout.type.tp_dictoffset, 8),

    OBJECT(15, size.heap_type),
    FIELD(15, layout.type.ht_cached_keys, POINTER),

    OBJECT(13, size.tuple),
    FIELD(13, layout.tuple.ob_item, POINTER),
    FIELD(13, ob_size.tuple, 8),

    OBJECT(13, size.list),
    FIELD(13, layout.list.ob_item, POINTER),
    FIELD(13, ob_size.list, 8),

    OBJECT(14, size.set),
    FIELD(14, layout.set.used, 8),
    FIELD(14, layout.set.table, POINTER),
    FIELD(14, layout.set.mask, 8),

    OBJECT(13, size.dict),
    FIELD(13, layout.dict.ma_keys, POINTER),
    FIELD(13, layout.dict.ma_values, POINTER),

    OBJECT(13, size.float_),
    FIELD(13, layout.float_.ob_fval, 8),

    OBJECT(13, size.long_),
    FIELD(13, layout.long_.lv_tag, 8),
    FIELD(13, layout.long_.ob_digit, 4),

    OBJECT(13, size.bytes),
    FIELD(13, ob_size.bytes, 8),
    FIELD(13, layout.bytes.ob_sval, 1),

    OBJECT(13, size.unicode),
    FIELD(13, layout.unicode.state, 4),
    FIELD(13, layout.unicode.length, 8),
    /* Sizes, but of structs that begin the one whose size is above: they end inside it. */
    FIELD(13, layout.unicode.ascii_size, 0),
    FIELD(15, layout.unicode.compact_size, 0),

    GROUP(13, gc.size, STATE_BYTES),
    FIELD(13, gc.collecting, INT),
    FIELD(15, gc.frame, POINTER),
    SKIP(15, gc.generation_stats_size),
    SKIP(15, gc.generation_stats),

    OBJECT(14, size.gen),
    FIELD(14, layout.gen.gi_name, POINTER),
    FIELD(14, layout.gen.gi_iframe, POINTER),
    FIELD(14, layout.gen.gi_frame_state, 1),

    UNSIZED_GROUP(14, 16),
    FIELD(14, layout.llist.next, POINTER),
    FIELD(14, layout.llist.prev, POINTER),
    /* struct _debugger_support follows, which strobe has no use for: it writes nothing into its target. */
};
/* clang-format on */

/* Where the reading of a table has got to. */
struct reader {
    const unsigned char *bytes;
    size_t size_bytes;
    size_t position;
    bool free_threaded;
    /* The group that the next columns belong to: its size, and the columns seen that take room in it. */
    uint64_t group_size;
    uint64_t group_start;
    size_t first;
};

/* A column's name as the user sees it. */
static const char *column_name(const struct column *column) {
    static const char prefix[] = "layout.";
    bool prefixed = strncmp(column->name, prefix, sizeof prefix - 1) == 0;
    return prefixed ? column->name + sizeof prefix - 1 : column->name;
}

static enum status refuse(const struct column *column, uint64_t value, const char *why, struct error *error) {
    return error_set(error, STATUS_NOT_PYTHON, "its debug offsets contradict themselves: %s is %" PRIu64 ", %s",
                     column_name(column), value, why);
}

static layout_offset *column_target(const struct column *column, struct debug_table *table) {
    return (layout_offset *)((char *)table + column->target);
}

static enum status begin_group(struct reader *reader, size_t index, uint64_t size, struct error *error) {
    const struct column *column = &columns[index];
    if (size < POINTER || size > column->width || size % POINTER != 0)
        return refuse(column, size, "not the size of a struct", error);
    reader->group_size = size;
    reader->group_start = 0;
    if (column->kind == OBJECT_SIZE)
        reader->group_start = reader->free_threaded ? FREE_THREADED_HEADER_BYTES : HEADER_BYTES;
    reader->first = index + 1;
    return STATUS_OK;
}

/* Two fields of one struct cannot share a byte. Most columns that were overwritten, say with zero, fail here. */
static enum status check_overlap(const struct reader *reader, size_t index, uint64_t value, struct debug_table *table,
                                 struct error *error) {
    const struct column *column = &columns[index];
    for (size_t i = reader->first; i < index; i++) {
        const struct column *other = &columns[i];
        if (other->kind != OFFSET && other->kind != FREE_THREADED)
            continue;
        layout_offset start = *column_target(other, table);
        if (start != OFFSET_NONE && value < (uint64_t)start + other->width && start < value + column->width)
            return refuse(column, value, "where another field is", error);
    }
    return STATUS_OK;
}

static enum status read_offset(const struct reader *reader, size_t index, uint64_t value, struct debug_table *table,
                               struct error *error) {
    const struct column *column = &columns[index];
    if (value < reader->group_start || value > reader->group_size || column->width > reader->group_size - value)
        return refuse(column, value, "outside its struct", error);
    if (column->width != 0 && value % column->width != 0)
        return refuse(column, value, "not aligned", error);
    if (column->width != 0)
        TRY(check_overlap(reader, index, value, table, error));
    *column_target(column, table) = (layout_offset)value;
    return STATUS_OK;
}

static enum status read_column(struct reader *reader, size_t index, struct debug_table *table, struct error *error) {
    const struct column *column = &columns[index];
    if (column->kind == UNSIZED) {
        reader->group_size = column->width;
        reader->group_start = 0;
        reader->first = index + 1;
        return STATUS_OK;
    }
    if (reader->size_bytes - reader->position < sizeof(uint64_t))
        return error_set(error, STATUS_NOT_PYTHON, "its debug offsets end before %s", column_name(column));
    uint64_t value = load_u64(reader->bytes + reader->position);
    reader->position += sizeof value;
    switch ((enum kind)column->kind) {
    case SIZE:
    case OBJECT_SIZE:
        TRY(begin_group(reader, index, value, error));
        *column_target(column, table) = (layout_offset)value;
        return STATUS_OK;
    case FREE_THREADED:
        if (!reader->free_threaded)
            return STATUS_OK;
        return read_offset(reader, index, value, table, error);
    case OFFSET:
        return read_offset(reader, index, value, table, error);
    case UNSIZED:
    case SKIPPED:
        break;
    }
    return STATUS_OK;
}

static enum status read_header(struct reader *reader, struct layout *layout, struct error *error) {
    if (!debug_offsets_present(reader->bytes, reader->size_bytes))
        return error_set(error, STATUS_NOT_PYTHON, "its runtime does not begin with debug offsets");
    uint64_t version = load_u64(reader->bytes + 8);
    uint64_t free_threaded = load_u64(reader->bytes + 16);
    if (version >> 24 != 3 || (version >> 16 & 0xff) < OLDEST_MINOR)
        return error_set(error, STATUS_NOT_PYTHON, "its debug offsets name no known version: 0x%" PRIx64, version);
    if (free_threaded > 1)
        return error_set(error, STATUS_NOT_PYTHON, "its debug offsets contradict themselves: free_threaded is %" PRIu64,
                         free_threaded);
    reader->position = PREAMBLE_BYTES;
    reader->free_threaded = free_threaded == 1;
    layout->version = (uint32_t)version;
    layout->free_threaded = reader->free_threaded;
    return STATUS_OK;
}

/* The table is the runtime's first field: nothing else lies where it was read from. */
static enum status check_runtime(const struct reader *reader, const struct layout_runtime *runtime,
                                 struct error *error) {
    if (runtime->finalizing >= reader->position && runtime->interpreters_head >= reader->position)
        return STATUS_OK;
    return error_set(error, STATUS_NOT_PYTHON,
                     "its debug offsets contradict themselves: the runtime's fields lie in them");
}

/* A table in which nothing is known yet. */
static void table_init(struct debug_table *table) {
    memset(table, 0xff, sizeof *table); /* every layout_offset is OFFSET_NONE */
    struct layout *layout = &table->layout;
    layout->tagged_refs = false;
    layout->newer_than_known = false;
    layout->managed.inline_values = false;
}

bool debug_offsets_present(const void *table, size_t size_bytes) {
    return size_bytes >= PREAMBLE_BYTES && memcmp(table, COOKIE, sizeof COOKIE - 1) == 0;
}

enum status debug_offsets_decode(const void *table, size_t size_bytes, struct layout *layout, struct error *error) {
    struct debug_table decoded;
    table_init(&decoded);
    struct reader reader = {.bytes = table, .size_bytes = size_bytes};
    TRY(read_header(&reader, &decoded.layout, error));
    int minor = layout_minor(&decoded.layout);
    decoded.layout.newer_than_known = minor > LAYOUT_NEWEST_MINOR;
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        if (columns[i].since <= minor)
            TRY(read_column(&reader, i, &decoded, error));
    }
    TRY(check_runtime(&reader, &decoded.layout.runtime, error));
    TRY(debug_offsets_derive(&decoded, error));
    *layout = decoded.layout;
    return STATUS_OK;
}
