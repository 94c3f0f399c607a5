/* A page cache over another reader: what was read once is not asked of the target again. For what does not change
 * while one looks: code, names, or everything while the target is stopped. */
#ifndef STROBE_BASE_MEMORY_PAGES_H
#define STROBE_BASE_MEMORY_PAGES_H

#include "base/map.h"
#include "base/memory.h"

/* Fields are private; `memory` is what readers are given. */
struct memory_pages {
    struct memory memory;
    struct memory *under;
    size_t page_bytes;
    struct map slots; /* page address -> index of its copy */
    uint8_t **chunks; /* copies of pages, some to a chunk */
    size_t page_count;
    size_t chunk_capacity;
};

/* Caches what is read from `under` (borrowed). At most 16 MiB are kept; beyond, the cache starts afresh. */
void memory_pages_init(struct memory_pages *pages, struct memory *under);
/* The same with pages of another size: a power of two, at most the processor's, so that one read meets no gap.
 */
void memory_pages_init_sized(struct memory_pages *pages, struct memory *under, size_t page_bytes);
void memory_pages_release(struct memory_pages *pages);
/* Forgets all pages: the next reads see the target as it is then. */
void memory_pages_clear(struct memory_pages *pages);

#endif
