/* Mappings that reserve more than they will need (MAP_NORESERVE): in the footprint is what of them was touched, as the
 * kernel has it. Looked at while CPU time goes by, as touching takes some, before they go and at the end; told of no
 * line, as nobody asks when a page is touched. Changes errno. */
#ifndef STROBE_AGENT_HEAP_TOUCHED_H
#define STROBE_AGENT_HEAP_TOUCHED_H

#include <stdbool.h>
#include <stddef.h>

/* One was made; when there are too many it is not counted. */
void heap_touched_map(const void *address, size_t size_bytes);
/* Something is about to go, or others are there already, which may be part of one, or of several, or of none. */
void heap_touched_unmap(const void *address, size_t size_bytes);
/* Whether one has this address. */
bool heap_touched_knows(const void *address);
/* Counts what was touched meanwhile, unless that was done a moment ago; at_once: also then. Async-signal-safe. */
void heap_touched_look(bool at_once);
/* In a child of fork, before anything else: what it has inherited is known, unless a thread was changing that. */
void heap_touched_forget(void);

#endif
