/* Loads from this process's own memory. CPython's structs are known by numbers, so addresses are numbers, too; that
 * they are mapped is for the caller to know. */
#ifndef STROBE_AGENT_LOAD_H
#define STROBE_AGENT_LOAD_H

#include <stdint.h>
#include <string.h>

static inline uint8_t load_u8(const void *from) {
    return *(const uint8_t *)from;
}

static inline uint16_t load_u16(const void *from) {
    uint16_t value;
    memcpy(&value, from, sizeof value);
    return value;
}

static inline uint32_t load_u32(const void *from) {
    uint32_t value;
    memcpy(&value, from, sizeof value);
    return value;
}

static inline int32_t load_i32(const void *from) {
    int32_t value;
    memcpy(&value, from, sizeof value);
    return value;
}

static inline uint64_t load_u64(const void *from) {
    uint64_t value;
    memcpy(&value, from, sizeof value);
    return value;
}

static inline const void *pointer_to(uint64_t address) {
    return (const void *)(uintptr_t)address;
}

#endif
