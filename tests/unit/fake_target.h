/* A target made by hand: a piece of memory at an address of its own, and objects put into it by a layout. */
#ifndef STROBE_TESTS_FAKE_TARGET_H
#define STROBE_TESTS_FAKE_TARGET_H

#include "cpython/runtime.h"

#include <stdlib.h>
#include <string.h>

enum { FAKE_START = 0x10000, FAKE_BYTES = 1 << 20 };

struct fake_target {
    struct memory memory;
    struct runtime runtime;
    size_t used_bytes;
    size_t reads;
    uint8_t bytes[FAKE_BYTES];
};

static inline enum status fake_read(struct memory *memory, remote_addr address, void *buffer, size_t size_bytes) {
    struct fake_target *target = (struct fake_target *)memory;
    target->reads++;
    if (address < FAKE_START || address > FAKE_START + FAKE_BYTES || size_bytes > FAKE_START + FAKE_BYTES - address)
        return STATUS_UNREADABLE;
    memcpy(buffer, target->bytes + (address - FAKE_START), size_bytes);
    return STATUS_OK;
}

/* With the layout of a release build of this minor version, for 3.8 to 3.12. */
static inline struct fake_target *fake_new(int minor) {
    struct fake_target *target = calloc(1, sizeof *target);
    size_t count = 0;
    const struct layout *tables = layout_tables(&count);
    if (target == NULL)
        abort();
    target->memory.read = fake_read;
    target->runtime.live = &target->memory;
    target->runtime.objects = &target->memory;
    for (size_t i = 0; i < count; i++)
        if (layout_minor(&tables[i]) == minor)
            target->runtime.layout = tables[i];
    if (target->runtime.layout.version == 0)
        abort();
    return target;
}

static inline remote_addr fake_allocate(struct fake_target *target, size_t size_bytes) {
    size_t at = (target->used_bytes + 15) / 16 * 16;
    if (at + size_bytes > FAKE_BYTES)
        abort();
    target->used_bytes = at + size_bytes;
    return FAKE_START + at;
}

static inline void fake_put(struct fake_target *target, remote_addr address, const void *bytes, size_t size_bytes) {
    if (size_bytes > 0)
        memcpy(target->bytes + (address - FAKE_START), bytes, size_bytes);
}

static inline void fake_put_u64(struct fake_target *target, remote_addr address, uint64_t value) {
    fake_put(target, address, &value, sizeof value);
}

static inline void fake_put_u8(struct fake_target *target, remote_addr address, uint8_t value) {
    fake_put(target, address, &value, sizeof value);
}

static inline remote_addr fake_cstring(struct fake_target *target, const char *text) {
    remote_addr address = fake_allocate(target, strlen(text) + 1);
    fake_put(target, address, text, strlen(text) + 1);
    return address;
}

/* A static type; further_flags besides that it is ready. */
static inline remote_addr fake_type(struct fake_target *target, const char *name, uint64_t further_flags) {
    const struct layout_type *type = &target->runtime.layout.type;
    remote_addr address = fake_allocate(target, 1024);
    fake_put_u64(target, address + type->tp_name, fake_cstring(target, name));
    fake_put_u64(target, address + type->tp_flags, UINT64_C(1) << 12 | further_flags);
    fake_put_u64(target, address + type->tp_basicsize, 64);
    return address;
}

static inline remote_addr fake_object(struct fake_target *target, remote_addr type, size_t size_bytes) {
    remote_addr address = fake_allocate(target, size_bytes);
    fake_put_u64(target, address + target->runtime.layout.object.ob_type, type);
    return address;
}

/* A str object: `state` as the interpreter's bits, the data of size_bytes behind a header of either kind. */
static inline remote_addr fake_string(struct fake_target *target, remote_addr type, unsigned kind, bool compact,
                                      bool ascii, uint64_t length, const void *data, size_t size_bytes) {
    const struct layout_unicode *unicode = &target->runtime.layout.unicode;
    remote_addr address = fake_object(target, type, unicode->compact_size + 8 + size_bytes);
    uint32_t state = kind << unicode->kind_shift | (uint32_t)compact << unicode->compact_shift |
                     (uint32_t)ascii << unicode->ascii_shift;
    remote_addr place = address + (ascii && compact ? unicode->ascii_size : unicode->compact_size);
    fake_put_u64(target, address + unicode->length, length);
    fake_put(target, address + unicode->state, &state, sizeof state);
    if (!compact) {
        fake_put_u64(target, place, fake_allocate(target, size_bytes));
        memcpy(&place, target->bytes + (place - FAKE_START), sizeof place);
    }
    fake_put(target, place, data, size_bytes);
    return address;
}

static inline remote_addr fake_ascii(struct fake_target *target, remote_addr type, const char *text) {
    return fake_string(target, type, 1, true, true, strlen(text), text, strlen(text));
}

static inline remote_addr fake_list(struct fake_target *target, remote_addr type, const remote_addr *items,
                                    size_t count) {
    const struct layout *layout = &target->runtime.layout;
    remote_addr address = fake_object(target, type, 64);
    remote_addr array = fake_allocate(target, count * 8 + 8);
    fake_put_u64(target, address + layout->object.ob_size, count);
    fake_put_u64(target, address + layout->list.ob_item, array);
    fake_put(target, array, items, count * 8);
    return address;
}

#endif
