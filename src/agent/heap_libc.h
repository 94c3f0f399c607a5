/* malloc and its kin (agent/heap.h). */
#ifndef STROBE_AGENT_HEAP_LIBC_H
#define STROBE_AGENT_HEAP_LIBC_H

#include <stdint.h>

/* A function of the library that malloc here hands everything on to. Allocates. */
const void *heap_libc_allocator(void);
/* What libc's malloc has given out, as itself counts it; 0: it does not say. */
int64_t heap_libc_bytes_in_use(void);

#endif
