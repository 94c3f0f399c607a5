#include "agent/mimalloc.h"

#include "agent/probe.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Include/internal/mimalloc/mimalloc/types.h, 64 bits:
 *
 *     segment, aligned to 32 MiB:  ... | slice 0 | slice 1 | ...      one for each 64 KiB of the segment
 *
 * A page is one or more slices; its first one (mi_page_t) describes it, and the others say how far back that is. */
enum {
    SEGMENT_BITS = 25,
    SLICE_BITS = 16,
    BACK_OFFSET = 4, /* mi_page_t.slice_offset, uint32_t: in bytes */
    MAX_SLICES = 1 << (SEGMENT_BITS - SLICE_BITS),
    TRIAL_BLOCKS = 200,
    LEAST_SLACK_BYTES = 16,
};

static const struct layout {
    uint32_t slices_offset; /* mi_segment_t.slices */
    uint32_t slice_bytes;   /* sizeof(mi_page_t) */
    uint32_t size_offset;   /* of the low half of mi_page_t.block_size, or xblock_size */
} layouts[] = {
    {264, 80, 28},
    {264, 96, 28}, /* mimalloc 2.1: 3.13, 3.13t */
    {288, 96, 40},
    {288, 112, 40}, /* mimalloc 2.2: 3.14 and 3.15, with GIL and without */
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };
/* MI_HUGE_BLOCK_SIZE of 3.13, which stands for all that is as large or larger. */
static const size_t NO_SIZE = (size_t)2 << 30;

/* Which one it is: LAYOUTS when it is none; and how many blocks were as they should be. */
static _Atomic uint32_t layout_index;
static _Atomic uint32_t trials;

static uintptr_t slice_of(const struct layout *layout, const void *block) {
    uintptr_t segment = ((uintptr_t)block - 1) >> SEGMENT_BITS << SEGMENT_BITS;
    return segment + layout->slices_offset + (((uintptr_t)block - segment) >> SLICE_BITS) * layout->slice_bytes;
}

static bool is_back_plausible(const struct layout *layout, uint32_t back_bytes) {
    return back_bytes % layout->slice_bytes == 0 && back_bytes < MAX_SLICES * layout->slice_bytes;
}

static size_t probe_size(const struct layout *layout, const void *block) {
    uint32_t back_bytes, size_bytes;
    uintptr_t slice = slice_of(layout, block);
    if (!probe_copy(slice + BACK_OFFSET, &back_bytes, sizeof back_bytes) || !is_back_plausible(layout, back_bytes) ||
        !probe_copy(slice - back_bytes + layout->size_offset, &size_bytes, sizeof size_bytes))
        return 0;
    return size_bytes;
}

/* Size classes are an eighth apart. */
static bool is_right(size_t found_bytes, size_t size_bytes) {
    return found_bytes >= size_bytes && found_bytes <= size_bytes + size_bytes / 4 + LEAST_SLACK_BYTES;
}

/* The first layout from this one on in which the block is right, if none has held so far. */
static size_t try_layouts(uint32_t index, const void *block, size_t size_bytes) {
    bool first = atomic_load(&trials) == 0;
    for (; index < LAYOUTS; index++) {
        size_t found_bytes = probe_size(&layouts[index], block);
        if (is_right(found_bytes, size_bytes)) {
            atomic_store(&layout_index, index);
            atomic_fetch_add(&trials, 1);
            return found_bytes;
        }
        if (!first)
            break;
    }
    atomic_store(&layout_index, LAYOUTS);
    return 0;
}

size_t mimalloc_new_block_size(const void *block, size_t size_bytes) {
    uint32_t index = atomic_load_explicit(&layout_index, memory_order_relaxed);
    if (index == LAYOUTS)
        return 0;
    if (atomic_load_explicit(&trials, memory_order_relaxed) >= TRIAL_BLOCKS)
        return mimalloc_block_size(block);
    /* A very large block is no size class, and proves nothing. */
    return size_bytes < NO_SIZE ? try_layouts(index, block, size_bytes) : 0;
}

static uint32_t read_word(uintptr_t address) {
    uint32_t word;
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    memcpy(&word, (const void *)address, sizeof word);
    return word;
}

size_t mimalloc_block_size(const void *block) {
    uint32_t index = atomic_load_explicit(&layout_index, memory_order_relaxed);
    if (index == LAYOUTS || block == NULL)
        return 0;
    const struct layout *layout = &layouts[index];
    if (atomic_load_explicit(&trials, memory_order_relaxed) < TRIAL_BLOCKS)
        return probe_size(layout, block);
    uintptr_t slice = slice_of(layout, block);
    uint32_t back_bytes = read_word(slice + BACK_OFFSET);
    if (!is_back_plausible(layout, back_bytes))
        return 0;
    size_t size_bytes = read_word(slice - back_bytes + layout->size_offset);
    return size_bytes < NO_SIZE ? size_bytes : 0;
}
