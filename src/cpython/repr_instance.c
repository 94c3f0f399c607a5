#include "cpython/repr_parts.h"

#include "base/bytes.h"
#include "cpython/copy.h"
#include "cpython/dict.h"
#include "cpython/str.h"

#include <string.h>

enum {
    POINTER_BYTES = 8,
    MAX_BASES = 32,
    MAX_SLOTS = 128,   /* shown of one class */
    MAX_FIELDS = 1024, /* of a namedtuple */
    SLOT_NAME_BYTES = 64,
    /* PyMemberDef (Include/structmember.h, from 3.12 on Include/descrobject.h): name, type, offset, flags, doc. */
    MEMBER_BYTES = 40,
    MEMBER_TYPE = 8,
    MEMBER_OFFSET = 16,
    MEMBER_IS_OBJECT = 6,     /* T_OBJECT */
    MEMBER_IS_OBJECT_EX = 16, /* T_OBJECT_EX, which __slots__ make */
};

struct attribute_walk {
    struct repr *repr;
    bool first;
};

/* Keys of a __dict__ need not be str. */
static enum status put_attribute(void *context, remote_addr key, remote_addr value) {
    struct attribute_walk *walk = context;
    struct type_info type;
    TRY(repr_put_comma(walk->repr, &walk->first));
    bool is_name = type_read(walk->repr->runtime, key, &type) == STATUS_OK && (type.flags & TYPE_IS_STR) != 0;
    if (!is_name || repr_put_name(walk->repr, key) != STATUS_OK)
        TRY(repr_put_value(walk->repr, key));
    TRY(repr_put(walk->repr, "="));
    return repr_put_value(walk->repr, value);
}

static bool is_hidden(const char *name) {
    size_t length = strlen(name);
    return length == 0 || (length >= 4 && memcmp(name, "__", 2) == 0 && strcmp(name + length - 2, "__") == 0);
}

/* One slot of a class; nothing for one that is not set, or that holds no object. */
static enum status put_slot(struct attribute_walk *walk, remote_addr object, const struct type_info *type,
                            const uint8_t member[MEMBER_BYTES]) {
    struct memory *memory = walk->repr->runtime->objects;
    uint32_t kind = load_u32(member + MEMBER_TYPE);
    uint64_t offset = load_u64(member + MEMBER_OFFSET);
    char name[SLOT_NAME_BYTES];
    remote_addr value = 0;
    if ((kind != MEMBER_IS_OBJECT && kind != MEMBER_IS_OBJECT_EX) || offset > (uint64_t)type->basicsize)
        return STATUS_OK;
    enum status status = memory_read_cstring(memory, load_u64(member), name, sizeof name);
    if (status != STATUS_OK && status != STATUS_LIMIT)
        return status;
    string_repair_utf8(name);
    TRY(memory_read_u64(memory, object + offset, &value));
    if (value == 0 || is_hidden(name))
        return STATUS_OK;
    TRY(repr_put_comma(walk->repr, &walk->first));
    TRY(repr_put(walk->repr, name));
    TRY(repr_put(walk->repr, "="));
    return repr_put_value(walk->repr, value);
}

/* The members of a class stand behind its type object: at the end of what its own type says a type object has
 * (PyHeapType_GET_MEMBERS, Include/cpython/object.h and internal/pycore_object.h). */
static enum status put_slots_of(struct attribute_walk *walk, remote_addr object, remote_addr type_address) {
    struct type_info type;
    struct type_info metatype;
    uint8_t member[MEMBER_BYTES];
    TRY(type_read_at(walk->repr->runtime, type_address, &type));
    TRY(type_read_at(walk->repr->runtime, type.type, &metatype));
    remote_addr members = type.address + (uint64_t)metatype.basicsize;
    for (int64_t i = 0; i < type.member_count && i < MAX_SLOTS; i++) {
        TRY(memory_read(walk->repr->runtime->objects, members + (uint64_t)i * MEMBER_BYTES, member, sizeof member));
        TRY(put_slot(walk, object, &type, member));
    }
    return STATUS_OK;
}

/* The classes with slots among a type and its bases, the outermost first; returns how many. */
static size_t find_slotted(struct repr *repr, const struct type_info *type, remote_addr slotted[MAX_BASES]) {
    struct type_info base = *type;
    size_t count = 0;
    for (int i = 0; i < MAX_BASES; i++) {
        if ((base.flags & TYPE_IS_HEAP_TYPE) != 0 && base.member_count > 0)
            slotted[count++] = base.address;
        if (base.base == 0 || type_read_at(repr->runtime, base.base, &base) != STATUS_OK)
            break;
    }
    return count;
}

static bool has_dict(struct repr *repr, const struct type_info *type) {
    bool managed = layout_has(repr->runtime->layout.managed.dict_back) && (type->flags & TYPE_HAS_MANAGED_DICT) != 0;
    return managed || type->dictoffset != 0;
}

/* What has neither a __dict__ nor anything in its slots says nothing by Name(). Nor does an empty __dict__ of what is
 * written in C: what such an object has lies elsewhere. */
enum status repr_show_instance(struct repr *repr, remote_addr object, const struct type_info *type) {
    remote_addr slotted[MAX_BASES];
    size_t slotted_count = find_slotted(repr, type, slotted);
    struct attribute_walk walk = {.repr = repr, .first = true};
    struct repr_mark before = repr_mark(repr);
    bool entered = false;
    if (slotted_count == 0 && !has_dict(repr, type))
        return repr_put_address(repr, object, type);
    TRY(repr_put(repr, type_name(type)));
    TRY(repr_enter(repr, object, "(", ")", &entered));
    if (!entered)
        return STATUS_OK;
    while (slotted_count > 0)
        TRY(put_slots_of(&walk, object, slotted[--slotted_count]));
    if (has_dict(repr, type))
        TRY(instance_visit(repr->runtime, object, put_attribute, &walk));
    TRY(repr_leave(repr, ")"));
    if (!walk.first || (has_dict(repr, type) && (type->flags & TYPE_IS_HEAP_TYPE) != 0))
        return STATUS_OK;
    repr_rewind(repr, &before);
    return repr_put_address(repr, object, type);
}

/* PyBaseExceptionObject: dict, args, ... (Include/cpython/pyerrors.h, 3.8 to 3.15) */
enum status repr_show_exception(struct repr *repr, remote_addr object, const struct type_info *type) {
    const struct layout *layout = &repr->runtime->layout;
    remote_addr args = 0;
    uint64_t count = 0;
    bool entered = false;
    TRY(memory_read_u64(repr->runtime->objects, object + layout->object.size + POINTER_BYTES, &args));
    if (args != 0)
        TRY(memory_read_u64(repr->runtime->objects, args + layout->object.ob_size, &count));
    TRY(repr_put(repr, type_name(type)));
    TRY(repr_enter(repr, object, "(", ")", &entered));
    if (!entered)
        return STATUS_OK;
    TRY(repr_put_items(repr, args + layout->tuple.ob_item, count));
    return repr_leave(repr, ")");
}

struct field_walk {
    struct repr *repr;
    remote_addr names;
    remote_addr values;
    uint64_t count;
};

static enum status put_fields(const struct field_walk *fields) {
    bool first = true;
    for (uint64_t i = 0; i < fields->count; i++) {
        remote_addr name = 0;
        remote_addr value = 0;
        TRY(memory_read_u64(fields->repr->runtime->objects, fields->names + i * POINTER_BYTES, &name));
        TRY(memory_read_u64(fields->repr->runtime->objects, fields->values + i * POINTER_BYTES, &value));
        TRY(repr_put_comma(fields->repr, &first));
        TRY(repr_put_name(fields->repr, name));
        TRY(repr_put(fields->repr, "="));
        TRY(repr_put_value(fields->repr, value));
    }
    return STATUS_OK;
}

/* collections.namedtuple keeps the names in the class's _fields, a tuple as long as the value. */
static enum status show_namedtuple(struct repr *repr, remote_addr object, const struct type_info *type) {
    const struct layout *layout = &repr->runtime->layout;
    struct type_info base = *type;
    struct type_info fields_type;
    remote_addr fields = 0;
    uint64_t field_count = 0;
    uint64_t count = 0;
    bool entered = false;
    for (int i = 0; fields == 0 && i < MAX_BASES; i++) {
        if ((base.flags & TYPE_IS_HEAP_TYPE) == 0)
            return STATUS_NOT_FOUND;
        if (dict_find_text(repr->runtime, base.dict, "_fields", &fields) != STATUS_OK)
            TRY(type_read_at(repr->runtime, base.base, &base));
    }
    TRY(type_read(repr->runtime, fields, &fields_type));
    TRY(memory_read_u64(repr->runtime->objects, fields + layout->object.ob_size, &field_count));
    TRY(memory_read_u64(repr->runtime->objects, object + layout->object.ob_size, &count));
    if ((fields_type.flags & TYPE_IS_TUPLE) == 0 || field_count != count || count > MAX_FIELDS)
        return STATUS_NOT_FOUND;
    TRY(repr_put(repr, type_name(type)));
    TRY(repr_enter(repr, object, "(", ")", &entered));
    if (!entered)
        return STATUS_OK;
    TRY(put_fields(&(struct field_walk){.repr = repr,
                                        .names = fields + layout->tuple.ob_item,
                                        .values = object + layout->tuple.ob_item,
                                        .count = count}));
    return repr_leave(repr, ")");
}

/* The class of enum's classes is EnumMeta, renamed to EnumType in 3.11, or derived from it. */
static bool is_enum(struct repr *repr, const struct type_info *type) {
    struct type_info metatype;
    remote_addr address = type->type;
    for (int i = 0; i < MAX_BASES && type_read_at(repr->runtime, address, &metatype) == STATUS_OK; i++) {
        if ((metatype.flags & TYPE_IS_HEAP_TYPE) == 0)
            return false;
        if (strcmp(metatype.full_name, "EnumType") == 0 || strcmp(metatype.full_name, "EnumMeta") == 0)
            return true;
        address = metatype.base;
    }
    return false;
}

static enum status show_enum(struct repr *repr, remote_addr object, const struct type_info *type) {
    remote_addr name = 0;
    remote_addr value = 0;
    struct type_info name_type;
    if (instance_find_text(repr->runtime, object, "_value_", &value) != STATUS_OK)
        return STATUS_NOT_FOUND;
    bool named = instance_find_text(repr->runtime, object, "_name_", &name) == STATUS_OK &&
                 type_read(repr->runtime, name, &name_type) == STATUS_OK && (name_type.flags & TYPE_IS_STR) != 0;
    TRY(repr_put_format(repr, "<%s", type_name(type)));
    if (named) {
        TRY(repr_put(repr, "."));
        TRY(repr_put_name(repr, name));
    }
    TRY(repr_put(repr, ": "));
    TRY(repr_put_value(repr, value));
    return repr_put(repr, ">");
}

enum status repr_show_special(struct repr *repr, remote_addr object, const struct type_info *type) {
    if (is_enum(repr, type))
        return show_enum(repr, object, type);
    if ((type->flags & TYPE_IS_TUPLE) != 0)
        return show_namedtuple(repr, object, type);
    return STATUS_NOT_FOUND;
}
