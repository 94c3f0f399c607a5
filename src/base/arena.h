/* Memory that is given back all at once. */
#ifndef STROBE_BASE_ARENA_H
#define STROBE_BASE_ARENA_H

#include <stddef.h>

struct arena_block;

/* Zero-initialised is an empty arena. */
struct arena {
    struct arena_block *blocks;
    size_t size_bytes;  /* of all blocks together */
    size_t limit_bytes; /* what that may not exceed; 0: no limit */
};

void arena_release(struct arena *arena);
/* Zeroed memory, aligned for any type, that lives until arena_release. NULL when there is none, or beyond the limit. */
void *arena_take(struct arena *arena, size_t size_bytes);
/* A NUL-terminated copy of `size_bytes` bytes of text. NULL when there is no memory. */
char *arena_copy_text(struct arena *arena, const char *text, size_t size_bytes);

#endif
