/* Type objects: what every reader of objects asks of an object first. */
#ifndef STROBE_CPYTHON_TYPE_H
#define STROBE_CPYTHON_TYPE_H

#include "cpython/runtime.h"

/* Longer names are cut. */
enum { TYPE_NAME_BYTES = 128 };

/* tp_flags (Include/object.h). The first two mean something else, or nothing, before the version given. */
#define TYPE_HAS_INLINE_VALUES (UINT64_C(1) << 2) /* 3.13+ */
#define TYPE_HAS_MANAGED_DICT (UINT64_C(1) << 4)  /* 3.11+ */
#define TYPE_IS_HEAP_TYPE (UINT64_C(1) << 9)
#define TYPE_IS_READY (UINT64_C(1) << 12)
#define TYPE_IS_INT (UINT64_C(1) << 24)
#define TYPE_IS_LIST (UINT64_C(1) << 25)
#define TYPE_IS_TUPLE (UINT64_C(1) << 26)
#define TYPE_IS_BYTES (UINT64_C(1) << 27)
#define TYPE_IS_STR (UINT64_C(1) << 28)
#define TYPE_IS_DICT (UINT64_C(1) << 29)
#define TYPE_IS_EXCEPTION (UINT64_C(1) << 30)
#define TYPE_IS_TYPE (UINT64_C(1) << 31)

struct type_info {
    remote_addr address;
    remote_addr type; /* the type's own type */
    remote_addr base; /* tp_base, 0 for object */
    remote_addr dict; /* tp_dict; null for some static types of 3.12+ */
    uint64_t flags;
    int64_t member_count; /* ob_size: of a heap type, how many __slots__ it has */
    int64_t basicsize;
    int64_t itemsize;
    int64_t dictoffset;
    char full_name[TYPE_NAME_BYTES]; /* tp_name: with the module for static types, without for classes */
    uint8_t name_start;              /* where type(x).__name__ begins in it */
};

/* The address of the object's type, nothing checked. */
enum status type_of(struct runtime *runtime, remote_addr object, remote_addr *type) MUST_USE;

/* Reads the type object at `address`. STATUS_TORN when that cannot be a type. */
enum status type_read_at(struct runtime *runtime, remote_addr address, struct type_info *info) MUST_USE;

/* Reads the type of the object at `object`. */
enum status type_read(struct runtime *runtime, remote_addr object, struct type_info *info) MUST_USE;

/* The name as type(x).__name__ gives it. Points into *info. */
const char *type_name(const struct type_info *info);

#endif
