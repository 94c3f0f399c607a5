#include "cpython/repr.h"

#include "cpython/repr_parts.h"
#include "cpython/str.h"

#include <stdio.h>
#include <string.h>

#define ELLIPSIS "\xe2\x80\xa6"

enum {
    /* What one value may cost to read. Real ones stay far below; this is for those made to be expensive. */
    PATIENCE_BYTES = 8 << 20,
    PATIENCE_READS = 50000,
    MAX_BASES = 64,
    MAX_NAME_CHARACTERS = 200,
    MAX_TYPE_NAME_CHARACTERS = 300,
};

/* Stands between repr and the target's memory and counts. */
struct meter {
    struct memory memory;
    struct memory *below;
    size_t left_bytes;
    size_t left_reads;
    bool exhausted;
};

static enum status meter_read(struct memory *memory, remote_addr address, void *buffer, size_t size_bytes) {
    struct meter *meter = (struct meter *)memory;
    meter->exhausted = meter->exhausted || size_bytes > meter->left_bytes || meter->left_reads == 0;
    if (meter->exhausted)
        return STATUS_LIMIT;
    meter->left_bytes -= size_bytes;
    meter->left_reads--;
    return memory_read(meter->below, address, buffer, size_bytes);
}

static enum status stop(struct repr *repr, enum status status) {
    repr->stopped = status;
    return status;
}

static enum status cut(struct repr *repr) {
    repr->cut = true;
    return stop(repr, STATUS_LIMIT);
}

/* How many bytes the first `*characters` characters take; *characters becomes how many there were. */
static size_t span_of(const char *text, size_t size_bytes, size_t *characters) {
    size_t seen = 0;
    size_t at = 0;
    while (at < size_bytes) {
        bool starts_character = ((uint8_t)text[at] & 0xc0) != 0x80;
        if (starts_character && seen == *characters)
            break;
        seen += starts_character;
        at++;
    }
    *characters = seen;
    return at;
}

enum status repr_put_bytes(struct repr *repr, const char *text, size_t size_bytes) {
    if (repr->stopped != STATUS_OK)
        return repr->stopped;
    size_t characters = repr->room;
    size_t fitting = span_of(text, size_bytes, &characters);
    enum status status = buffer_append(repr->text, text, fitting);
    if (status != STATUS_OK)
        return stop(repr, status);
    repr->room -= characters;
    return fitting == size_bytes ? STATUS_OK : cut(repr);
}

enum status repr_put(struct repr *repr, const char *text) {
    return repr_put_bytes(repr, text, strlen(text));
}

enum status repr_put_format(struct repr *repr, const char *format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length < 0)
        return stop(repr, STATUS_FAILED);
    return repr_put(repr, text);
}

enum status repr_put_name(struct repr *repr, remote_addr string) {
    struct buffer name;
    buffer_init(&name, (size_t)8 * MAX_NAME_CHARACTERS);
    enum status status = string_read(repr->runtime, string, MAX_NAME_CHARACTERS, &name, NULL);
    if (status == STATUS_OK)
        status = repr_put_bytes(repr, buffer_text(&name), name.size_bytes);
    buffer_release(&name);
    return status;
}

enum status repr_put_address(struct repr *repr, remote_addr object, const struct type_info *type) {
    return repr_put_format(repr, "<%s at 0x%llx>", type_name(type), (unsigned long long)object);
}

struct repr_mark repr_mark(const struct repr *repr) {
    return (struct repr_mark){.size_bytes = repr->text->size_bytes, .room = repr->room};
}

void repr_rewind(struct repr *repr, const struct repr_mark *mark) {
    buffer_truncate(repr->text, mark->size_bytes);
    repr->room = mark->room;
}

enum status repr_put_comma(struct repr *repr, bool *first) {
    bool was_first = *first;
    *first = false;
    return was_first ? STATUS_OK : repr_put(repr, ", ");
}

enum status repr_enter(struct repr *repr, remote_addr object, const char *open, const char *close, bool *entered) {
    TRY(repr_put(repr, open));
    *entered = false;
    for (unsigned i = 0; i < repr->depth; i++) {
        if (repr->path[i] != object)
            continue;
        TRY(repr_put(repr, "..."));
        return repr_put(repr, close);
    }
    if (repr->depth == REPR_MAX_DEPTH) {
        TRY(repr_put(repr, ELLIPSIS));
        return repr_put(repr, close);
    }
    repr->path[repr->depth++] = object;
    *entered = true;
    return STATUS_OK;
}

enum status repr_leave(struct repr *repr, const char *close) {
    repr->depth--;
    return repr_put(repr, close);
}

enum status repr_find_base(struct repr *repr, struct type_info *type, const char *full_name) {
    for (int i = 0; i < MAX_BASES; i++) {
        if (strcmp(type->full_name, full_name) == 0)
            return STATUS_OK;
        if (type->base == 0)
            return STATUS_NOT_FOUND;
        TRY(type_read_at(repr->runtime, type->base, type));
    }
    return STATUS_NOT_FOUND;
}

static enum status show_none(struct repr *repr, remote_addr object, const struct type_info *type) {
    (void)object;
    (void)type;
    return repr_put(repr, "None");
}

static enum status show_ellipsis(struct repr *repr, remote_addr object, const struct type_info *type) {
    (void)object;
    (void)type;
    return repr_put(repr, "Ellipsis");
}

static enum status show_not_implemented(struct repr *repr, remote_addr object, const struct type_info *type) {
    (void)object;
    (void)type;
    return repr_put(repr, "NotImplemented");
}

/* Built-in types by their tp_name, which for those of modules has changed between versions. `names_itself`: the text
 * has the type's name in it already, so that a subclass needs no Name(...) around it. */
static const struct shower {
    const char *full_name;
    repr_show_fn *show;
    bool names_itself;
} showers[] = {
    {"NoneType", show_none, false},
    {"ellipsis", show_ellipsis, false},
    {"NotImplementedType", show_not_implemented, false},
    {"bool", repr_show_bool, false},
    {"int", repr_show_int, false},
    {"float", repr_show_float, false},
    {"complex", repr_show_complex, false},
    {"str", repr_show_str, false},
    {"bytes", repr_show_bytes, false},
    {"bytearray", repr_show_bytearray, true},
    {"list", repr_show_list, false},
    {"tuple", repr_show_tuple, false},
    {"dict", repr_show_dict, false},
    {"frozendict", repr_show_frozendict, true}, /* 3.15+ */
    {"set", repr_show_set, true},
    {"frozenset", repr_show_set, true},
    {"collections.deque", repr_show_deque, true},
    {"collections.defaultdict", repr_show_defaultdict, true},
    {"mappingproxy", repr_show_mappingproxy, true},
    {"range", repr_show_range, true},
    {"slice", repr_show_slice, true},
    {"type", repr_show_type, true},
    {"function", repr_show_function, true},
    {"method", repr_show_method, true},
    {"builtin_function_or_method", repr_show_builtin, true},
    {"module", repr_show_module, true},
    {"generator", repr_show_generator, true},
    {"coroutine", repr_show_generator, true},
    {"async_generator", repr_show_generator, true},
    {"code", repr_show_code, true},
    {"cell", repr_show_cell, true},
    {"weakref", repr_show_weakref, true},               /* <= 3.9 */
    {"weakref.ReferenceType", repr_show_weakref, true}, /* 3.10+ */
    {"method_descriptor", repr_show_descriptor, true},
    {"classmethod_descriptor", repr_show_descriptor, true},
    {"wrapper_descriptor", repr_show_descriptor, true},
    {"getset_descriptor", repr_show_descriptor, true},
    {"member_descriptor", repr_show_descriptor, true},
    {"sentinel", repr_show_sentinel, true},       /* 3.15+ */
    {"lazy_import", repr_show_lazy_import, true}, /* 3.15+ */
    {"BaseException", repr_show_exception, true},
    {"datetime.date", repr_show_date, true},
    {"datetime.datetime", repr_show_datetime, true},
    {"datetime.time", repr_show_time, true},
    {"datetime.timedelta", repr_show_timedelta, true},
    {"datetime.timezone", repr_show_timezone, true},
    {"numpy.ndarray", repr_show_numpy_array, true},
    {"numpy.dtype", repr_show_numpy_dtype, true},
};

/* A class of the target's own may be called "dict"; a static type, or one with its module in its name, is what it
 * says. */
static const struct shower *find_shower(const struct type_info *type) {
    if ((type->flags & TYPE_IS_HEAP_TYPE) != 0 && strchr(type->full_name, '.') == NULL)
        return NULL;
    for (size_t i = 0; i < sizeof showers / sizeof showers[0]; i++)
        if (strcmp(showers[i].full_name, type->full_name) == 0)
            return &showers[i];
    return NULL;
}

static enum status show_by_base(struct repr *repr, remote_addr object, const struct type_info *type) {
    struct type_info base = *type;
    const struct shower *shower = find_shower(&base);
    for (int i = 0; shower == NULL && base.base != 0 && i < MAX_BASES; i++) {
        TRY(type_read_at(repr->runtime, base.base, &base));
        shower = find_shower(&base);
    }
    if (shower == NULL)
        return repr_show_instance(repr, object, type);
    if (base.address == type->address || shower->names_itself)
        return shower->show(repr, object, type);
    TRY(repr_put_format(repr, "%s(", type_name(type)));
    TRY(shower->show(repr, object, type));
    return repr_put(repr, ")");
}

static enum status show(struct repr *repr, remote_addr object) {
    struct type_info type;
    TRY(type_read(repr->runtime, object, &type));
    enum status status = STATUS_NOT_FOUND;
    if (strncmp(type.full_name, "numpy.", strlen("numpy.")) == 0)
        status = repr_show_numpy_scalar(repr, object, &type);
    else if ((type.flags & TYPE_IS_HEAP_TYPE) != 0)
        status = repr_show_special(repr, object, &type);
    return status == STATUS_NOT_FOUND ? show_by_base(repr, object, &type) : status;
}

enum status repr_put_value(struct repr *repr, remote_addr object) {
    struct repr_mark before = repr_mark(repr);
    unsigned depth_before = repr->depth;
    if (object == 0)
        return repr_put(repr, "<null>");
    if (repr->nesting == REPR_MAX_NESTING)
        return repr_put(repr, ELLIPSIS);
    repr->nesting++;
    enum status status = show(repr, object);
    repr->nesting--;
    repr->depth = depth_before;
    if (status == STATUS_OK || repr->stopped != STATUS_OK)
        return status;
    if (repr->meter->exhausted)
        return cut(repr);
    repr_rewind(repr, &before);
    return repr_put(repr, "<unreadable>");
}

/* Makes room for the ellipsis by taking the last character away. */
static enum status end_with_ellipsis(struct buffer *text, size_t size_before, size_t room) {
    size_t end = text->size_bytes;
    if (room == 0) {
        while (end > size_before && ((uint8_t)text->data[end - 1] & 0xc0) == 0x80)
            end--;
        if (end == size_before)
            return STATUS_OK;
        buffer_truncate(text, end - 1);
    }
    return buffer_append_text(text, ELLIPSIS);
}

enum status repr_append(struct runtime *runtime, remote_addr address, size_t max_characters, struct buffer *text) {
    struct meter meter = {
        .memory = {.read = meter_read},
        .below = runtime->objects,
        .left_bytes = PATIENCE_BYTES,
        .left_reads = PATIENCE_READS,
    };
    struct repr repr = {.runtime = runtime, .text = text, .room = max_characters, .meter = &meter};
    size_t size_before = text->size_bytes;
    runtime->objects = &meter.memory;
    enum status status = repr_put_value(&repr, address);
    runtime->objects = meter.below;
    return repr.cut ? end_with_ellipsis(text, size_before, repr.room) : status;
}

enum status repr_append_type_name(struct runtime *runtime, remote_addr address, struct buffer *text) {
    struct type_info type;
    if (address == 0 || type_read(runtime, address, &type) != STATUS_OK)
        return buffer_append_text(text, address == 0 ? "<null>" : "<unreadable>");
    bool whole = strlen(type.full_name) + 1 < sizeof type.full_name;
    if ((type.flags & TYPE_IS_HEAP_TYPE) == 0 || (type.name_start == 0 && whole))
        return buffer_append_text(text, type_name(&type));
    /* A class may have dots in its name, and a type made by an extension its module. */
    remote_addr name = 0;
    bool cut_off = false;
    size_t size_before = text->size_bytes;
    enum status status = memory_read_u64(runtime->objects, type.address + runtime->layout.type.ht_name, &name);
    if (status == STATUS_OK)
        status = string_read(runtime, name, MAX_TYPE_NAME_CHARACTERS, text, &cut_off);
    if (status == STATUS_OK && cut_off)
        return buffer_append_text(text, ELLIPSIS);
    if (status == STATUS_OK || text->size_bytes != size_before)
        return status;
    return buffer_append_text(text, type_name(&type));
}
