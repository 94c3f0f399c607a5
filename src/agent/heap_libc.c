/* malloc and its kin, in place of those that the program would find, which come next: libc's, or those of another
 * library that was preloaded. Blocks are handed through as they are, so that it does no harm when one is given back
 * past these functions, or through them when it was not given out by them. */
#include "agent/heap_libc.h"
#include "agent/agent.h"
#include "agent/heap.h"
#include "agent/heap_map.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

enum { EARLY_BYTES = 16 << 10, PAGE_BYTES = 4096 };

static void *first_malloc(size_t size_bytes);
static void *first_calloc(size_t count, size_t size_bytes);
static void *first_realloc(void *block, size_t size_bytes);
static void first_free(void *block);
static void *first_memalign(size_t alignment, size_t size_bytes);
static void *first_aligned_alloc(size_t alignment, size_t size_bytes);
static int first_posix_memalign(void **block, size_t alignment, size_t size_bytes);
static size_t first_usable_size(void *block);

struct next {
    void *(*malloc)(size_t);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void (*free)(void *);
    void *(*memalign)(size_t, size_t);
    void *(*aligned_alloc)(size_t, size_t);
    int (*posix_memalign)(void **, size_t, size_t);
    size_t (*usable_size)(void *);
};
/* The first call finds them all. */
static struct next next = {
    .malloc = first_malloc,
    .calloc = first_calloc,
    .realloc = first_realloc,
    .free = first_free,
    .memalign = first_memalign,
    .aligned_alloc = first_aligned_alloc,
    .posix_memalign = first_posix_memalign,
    .usable_size = first_usable_size,
};

/* What the search itself allocates, which is never given back: before each block stands its size. */
alignas(16) static char early[EARLY_BYTES];
static size_t early_used;
static bool finding;

static bool is_early(const void *block) {
    return (uintptr_t)block - (uintptr_t)early < EARLY_BYTES;
}

static size_t early_size(const void *block) {
    size_t size_bytes;
    memcpy(&size_bytes, (const char *)block - alignof(max_align_t), sizeof size_bytes);
    return size_bytes;
}

static void *early_malloc(size_t size_bytes) {
    size_t head = alignof(max_align_t);
    if (size_bytes > EARLY_BYTES || early_used + head + size_bytes > EARLY_BYTES) {
        errno = ENOMEM;
        return NULL;
    }
    char *block = early + early_used + head;
    memcpy(block - head, &size_bytes, sizeof size_bytes);
    early_used += head + ((size_bytes + head - 1) & ~(head - 1));
    return block;
}

static void find_next(void) {
    struct next found = {0};
    finding = true;
    *(void **)&found.malloc = dlsym(RTLD_NEXT, "malloc");
    *(void **)&found.calloc = dlsym(RTLD_NEXT, "calloc");
    *(void **)&found.realloc = dlsym(RTLD_NEXT, "realloc");
    *(void **)&found.free = dlsym(RTLD_NEXT, "free");
    *(void **)&found.memalign = dlsym(RTLD_NEXT, "memalign");
    *(void **)&found.aligned_alloc = dlsym(RTLD_NEXT, "aligned_alloc");
    *(void **)&found.posix_memalign = dlsym(RTLD_NEXT, "posix_memalign");
    *(void **)&found.usable_size = dlsym(RTLD_NEXT, "malloc_usable_size");
    heap_map_find_next();
    finding = false;
    next = found;
}

static void *first_malloc(size_t size_bytes) {
    if (finding)
        return early_malloc(size_bytes);
    find_next();
    return next.malloc(size_bytes);
}

static void *first_calloc(size_t count, size_t size_bytes) {
    if (finding)
        return early_malloc(count * size_bytes); /* a few small blocks, which are zero */
    find_next();
    return next.calloc(count, size_bytes);
}

static void *first_realloc(void *block, size_t size_bytes) {
    find_next();
    return next.realloc(block, size_bytes);
}

static void first_free(void *block) {
    if (finding)
        return;
    find_next();
    next.free(block);
}

static void *first_memalign(size_t alignment, size_t size_bytes) {
    find_next();
    return next.memalign(alignment, size_bytes);
}

static void *first_aligned_alloc(size_t alignment, size_t size_bytes) {
    find_next();
    return next.aligned_alloc(alignment, size_bytes);
}

static int first_posix_memalign(void **block, size_t alignment, size_t size_bytes) {
    find_next();
    return next.posix_memalign(block, alignment, size_bytes);
}

static size_t first_usable_size(void *block) {
    if (finding)
        return 0;
    find_next();
    return next.usable_size(block);
}

/* struct mallinfo2 (malloc.h of glibc 2.33) */
struct usage {
    size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};

int64_t heap_libc_bytes_in_use(void) {
    struct usage (*tell)(void);
    *(void **)&tell = dlsym(RTLD_NEXT, "mallinfo2");
    if (tell == NULL)
        return 0;
    struct usage usage = tell();
    return (int64_t)(usage.uordblks + usage.hblkhd);
}

const void *heap_libc_allocator(void) {
    free(malloc(1)); /* it is found */
    const void *function;
    memcpy(&function, &next.malloc, sizeof function);
    return function;
}

static inline __attribute__((always_inline)) void *given(void *block, size_t size_bytes) {
    if (heap_on && block != NULL && !is_early(block))
        heap_note_given(block, size_bytes, next.usable_size(block));
    return block;
}

AGENT_EXPORT void *malloc(size_t size_bytes) {
    return given(next.malloc(size_bytes), size_bytes);
}

AGENT_EXPORT void *calloc(size_t count, size_t size_bytes) {
    return given(next.calloc(count, size_bytes), count * size_bytes);
}

AGENT_EXPORT void free(void *block) {
    if (block == NULL || is_early(block))
        return;
    if (heap_on) {
        heap_thread.delta -= (int64_t)next.usable_size(block);
        if (sampled_may_hold((uint64_t)(uintptr_t)block))
            heap_give_back(block);
        if (heap_delta_is_large())
            heap_flush();
    }
    next.free(block);
}

AGENT_EXPORT size_t malloc_usable_size(void *block) {
    return block == NULL ? 0 : is_early(block) ? early_size(block) : next.usable_size(block);
}

static void *move_early(const void *block, size_t size_bytes) {
    void *moved = malloc(size_bytes);
    size_t old_bytes = early_size(block);
    if (moved != NULL)
        memcpy(moved, block, old_bytes < size_bytes ? old_bytes : size_bytes);
    return moved;
}

/* A block was resized; `sampled`, if it is that, was taken out. */
static void note_resized(void *moved, size_t size_bytes, size_t old_usable_bytes, struct sampled *sampled) {
    size_t usable_bytes = next.usable_size(moved);
    size_t old_bytes = sampled != NULL ? sampled->size_bytes : old_usable_bytes;
    struct heap_block block = {.address = moved, .size_bytes = size_bytes};
    if (size_bytes > old_bytes)
        block.grown_bytes = size_bytes - old_bytes;
    if (sampled != NULL) {
        block.id = sampled->id;
        heap_keep(sampled, moved, size_bytes);
    }
    heap_thread.delta += (int64_t)usable_bytes - (int64_t)old_usable_bytes;
    heap_thread.left -= (int64_t)block.grown_bytes;
    if (heap_thread.left < 0 || heap_delta_is_large())
        heap_look(&block);
}

static void *resize(void *block, size_t size_bytes) {
    size_t old_usable_bytes = next.usable_size(block);
    heap_thread.resizes++;
    struct sampled sampled;
    /* Taken out before, as another thread may be given the address as soon as it is left. */
    bool is_sampled = sampled_may_hold((uint64_t)(uintptr_t)block) && heap_take_out(block, &sampled);
    void *moved = next.realloc(block, size_bytes);
    if (moved != NULL)
        note_resized(moved, size_bytes, old_usable_bytes, is_sampled ? &sampled : NULL);
    else if (is_sampled)
        heap_keep(&sampled, block, sampled.size_bytes);
    return moved;
}

AGENT_EXPORT void *realloc(void *block, size_t size_bytes) {
    if (block == NULL)
        return given(next.realloc(NULL, size_bytes), size_bytes);
    if (is_early(block))
        return move_early(block, size_bytes);
    if (!heap_on)
        return next.realloc(block, size_bytes);
    if (size_bytes > 0)
        return resize(block, size_bytes);
    /* glibc gives it back; others give out a block of no size. */
    size_t old_usable_bytes = next.usable_size(block);
    if (sampled_may_hold((uint64_t)(uintptr_t)block))
        heap_give_back(block);
    heap_thread.delta -= (int64_t)old_usable_bytes;
    return given(next.realloc(block, 0), 0);
}

/* Not libc's, which would come back to realloc here or, with another allocator, would not. */
AGENT_EXPORT void *reallocarray(void *block, size_t count, size_t size_bytes) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size_bytes, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(block, bytes);
}

AGENT_EXPORT void *memalign(size_t alignment, size_t size_bytes) {
    return given(next.memalign(alignment, size_bytes), size_bytes);
}

AGENT_EXPORT void *aligned_alloc(size_t alignment, size_t size_bytes) {
    return given(next.aligned_alloc(alignment, size_bytes), size_bytes);
}

AGENT_EXPORT int posix_memalign(void **block, size_t alignment, size_t size_bytes) {
    int result = next.posix_memalign(block, alignment, size_bytes);
    if (result == 0)
        given(*block, size_bytes);
    return result;
}

/* Not every allocator has these two, and libc's would not be its. */
AGENT_EXPORT void *valloc(size_t size_bytes) {
    return memalign(PAGE_BYTES, size_bytes);
}

AGENT_EXPORT void *pvalloc(size_t size_bytes) {
    if (size_bytes > SIZE_MAX - PAGE_BYTES) {
        errno = ENOMEM;
        return NULL;
    }
    return memalign(PAGE_BYTES, (size_bytes + PAGE_BYTES - 1) & ~(size_t)(PAGE_BYTES - 1));
}
