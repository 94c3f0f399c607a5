/* What runs at each sample finds the caches full of the program's data: nearly all that it touches, its own code
 * included, comes from memory. So it touches little, and asks early for what it knows that it will touch, so that the
 * processor waits for all of it once and not for each in turn. */
#ifndef STROBE_AGENT_HOT_H
#define STROBE_AGENT_HOT_H

#include "agent/load.h"

#include <stddef.h>

/* Of functions: the linker puts them beside each other, in few pages and lines. */
#define AGENT_HOT __attribute__((hot))

enum { HOT_LINE_BYTES = 64 };

/* Nothing is read: any address will do, also one where nothing is mapped. */
static inline void hot_expect(uint64_t address) {
    __builtin_prefetch(pointer_to(address));
}

static inline void hot_expect_bytes(const void *from, size_t size_bytes) {
    uint64_t address = (uint64_t)(uintptr_t)from, end = address + size_bytes;
    for (address &= ~(uint64_t)(HOT_LINE_BYTES - 1); address < end; address += HOT_LINE_BYTES)
        hot_expect(address);
}

#endif
