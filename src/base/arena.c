#include "base/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 32 * 1024, ALIGNMENT = 16 };

struct arena_block {
    struct arena_block *next;
    size_t used_bytes;
    size_t size_bytes;
    _Alignas(ALIGNMENT) char data[];
};

void arena_release(struct arena *arena) {
    while (arena->blocks != NULL) {
        struct arena_block *next = arena->blocks->next;
        free(arena->blocks);
        arena->blocks = next;
    }
    arena->size_bytes = 0;
}

static struct arena_block *add_block(struct arena *arena, size_t least_bytes) {
    size_t size_bytes = least_bytes > BLOCK_BYTES ? least_bytes : BLOCK_BYTES;
    if (arena->limit_bytes != 0 && size_bytes > arena->limit_bytes - arena->size_bytes)
        return NULL;
    struct arena_block *block = calloc(1, sizeof *block + size_bytes);
    if (block == NULL)
        return NULL;
    block->size_bytes = size_bytes;
    block->next = arena->blocks;
    arena->blocks = block;
    arena->size_bytes += size_bytes;
    return block;
}

void *arena_take(struct arena *arena, size_t size_bytes) {
    if (size_bytes > SIZE_MAX / 2)
        return NULL;
    size_bytes = (size_bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    struct arena_block *block = arena->blocks;
    if (block == NULL || block->size_bytes - block->used_bytes < size_bytes)
        block = add_block(arena, size_bytes);
    if (block == NULL)
        return NULL;
    void *taken = block->data + block->used_bytes;
    block->used_bytes += size_bytes;
    return taken;
}

char *arena_copy_text(struct arena *arena, const char *text, size_t size_bytes) {
    char *copy = arena_take(arena, size_bytes + 1);
    if (copy != NULL && size_bytes > 0)
        memcpy(copy, text, size_bytes);
    return copy;
}
