/* Loads from this process's own memory. CPython's structs are known by numbers, so addresses are numbers, too; that
 * they are mapped is for the caller to know. */
#ifndef STROBE_AGENT_LOAD_H
#define STROBE_AGENT_LOAD_H

#include "base/bytes.h"

static inline const void *pointer_to(uint64_t address) {
    return (const void *)(uintptr_t)address;
}

#endif
