/* Large blocks that were allocated before the process had a region: by constructors of libraries that are initialised
 * before the agent. They are remembered here until they can be told. */
#ifndef STROBE_AGENT_HEAP_EARLY_H
#define STROBE_AGENT_HEAP_EARLY_H

#include <stddef.h>
#include <stdint.h>

enum { HEAP_EARLY_LEAST_BYTES = 64 << 10, HEAP_EARLY_BLOCKS = 64 };

/* Smaller ones are left out, and those that there is no room for. */
void heap_early_add(void *address, size_t size_bytes);
/* It is given back, or about to be changed. */
void heap_early_remove(void *address);
/* Takes one out, and says of which size it is; 0: there is none left. */
size_t heap_early_take(void **address);

#endif
