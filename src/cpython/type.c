#include "cpython/type.h"

#include "cpython/copy.h"
#include "cpython/str.h"

#include <string.h>

/* Far above any real type: the largest in CPython have a few kilobytes. */
enum { MAX_BASICSIZE = 1 << 20, MAX_ITEMSIZE = 1 << 16 };

enum status type_of(struct runtime *runtime, remote_addr object, remote_addr *type) {
    struct copy head;
    TRY(copy_read(runtime->objects, object, runtime->layout.object.ob_type, &head));
    *type = copy_u64(&head, runtime->layout.object.ob_type);
    return STATUS_OK;
}

static bool is_sane(const struct type_info *info) {
    return (info->flags & TYPE_IS_READY) != 0 && info->basicsize >= 0 && info->basicsize <= MAX_BASICSIZE &&
           info->itemsize >= 0 && info->itemsize <= MAX_ITEMSIZE && info->dictoffset <= MAX_BASICSIZE &&
           info->dictoffset >= -MAX_BASICSIZE;
}

enum status type_read_at(struct runtime *runtime, remote_addr address, struct type_info *info) {
    const struct layout_object *object = &runtime->layout.object;
    const struct layout_type *type = &runtime->layout.type;
    struct copy copy;
    TRY(copy_read(runtime->objects, address, type->tp_dictoffset, &copy));
    info->address = address;
    info->type = copy_u64(&copy, object->ob_type);
    info->base = copy_u64(&copy, type->tp_base);
    info->dict = copy_u64(&copy, type->tp_dict);
    info->flags = copy_u64(&copy, type->tp_flags);
    info->member_count = (int64_t)copy_u64(&copy, object->ob_size);
    info->basicsize = (int64_t)copy_u64(&copy, type->tp_basicsize);
    info->itemsize = (int64_t)copy_u64(&copy, type->tp_itemsize);
    info->dictoffset = (int64_t)copy_u64(&copy, type->tp_dictoffset);
    if (!is_sane(info))
        return STATUS_TORN;
    enum status status =
        memory_read_cstring(runtime->objects, copy_u64(&copy, type->tp_name), info->full_name, sizeof info->full_name);
    if (status != STATUS_OK && status != STATUS_LIMIT)
        return status;
    string_repair_utf8(info->full_name);
    const char *dot = strrchr(info->full_name, '.');
    info->name_start = dot != NULL ? (uint8_t)(dot + 1 - info->full_name) : 0;
    return STATUS_OK;
}

enum status type_read(struct runtime *runtime, remote_addr object, struct type_info *info) {
    remote_addr type = 0;
    TRY(type_of(runtime, object, &type));
    return type_read_at(runtime, type, info);
}

const char *type_name(const struct type_info *info) {
    return info->full_name + info->name_start;
}
