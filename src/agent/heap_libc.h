/* malloc and its kin (agent/heap.h). */
#ifndef STROBE_AGENT_HEAP_LIBC_H
#define STROBE_AGENT_HEAP_LIBC_H

/* A function of the library that malloc here hands everything on to. Allocates. */
const void *heap_libc_allocator(void);

#endif
