#include "cpython/copy.h"

enum { POINTER_BYTES = 8 };

enum status copy_read(struct memory *memory, remote_addr address, layout_offset last_field, struct copy *copy) {
    copy->size_bytes = 0;
    if (last_field > COPY_MAX_BYTES - POINTER_BYTES)
        return STATUS_LIMIT;
    /* Everything that CPython allocates or defines statically is at least pointer-aligned. */
    if (address == 0 || address % POINTER_BYTES != 0)
        return STATUS_TORN;
    size_t size_bytes = last_field + POINTER_BYTES;
    TRY(memory_read(memory, address, copy->bytes, size_bytes));
    copy->size_bytes = size_bytes;
    return STATUS_OK;
}

static bool holds(const struct copy *copy, layout_offset offset, size_t size_bytes) {
    return copy->size_bytes >= size_bytes && offset <= copy->size_bytes - size_bytes;
}

uint64_t copy_u64(const struct copy *copy, layout_offset offset) {
    return holds(copy, offset, sizeof(uint64_t)) ? load_u64(copy->bytes + offset) : 0;
}

uint32_t copy_u32(const struct copy *copy, layout_offset offset) {
    return holds(copy, offset, sizeof(uint32_t)) ? load_u32(copy->bytes + offset) : 0;
}

uint8_t copy_u8(const struct copy *copy, layout_offset offset) {
    return holds(copy, offset, sizeof(uint8_t)) ? load_u8(copy->bytes + offset) : 0;
}
