/* What --memory exact does for what Python's allocators hand out most: small blocks in a thread that has its state,
 * whose stack, cell and neighbourhood are known. Here, so that the hooks need not call it, and without calls, so that
 * it needs no stack. The rest: exact_given, exact_back (agent/exact.h). */
#ifndef STROBE_AGENT_EXACT_QUICK_H
#define STROBE_AGENT_EXACT_QUICK_H

#include "agent/blocks.h"
#include "agent/busy.h"
#include "agent/exact_detached.h"
#include "agent/load.h"
#include "agent/sites.h"
#include "wire/region.h"

enum {
    EXACT_CELLS_IN_PAGE = 512,
    EXACT_PAGES = BLOCKS_MAX_SITES / EXACT_CELLS_IN_PAGE,
    EXACT_LEAVES = 8,
    EXACT_MEMO_BITS = 9,
    EXACT_MEMO_SHIFT = 8, /* of their size */
    EXACT_MEMO_CALLERS = 28,
};

/* What a thread has done with a site's blocks since it last said so. What lives of it is what was allocated and is not
 * gone; a block that moves from one site to another as it grows is gone there, and here less is gone. */
struct exact_cell {
    uint64_t alloc_bytes;
    int64_t gone_bytes;
    int64_t before_bytes; /* what of it came before peak_id was seen to change */
    uint32_t alloc_count;
    int32_t gone_count;
    uint32_t peak_id; /* of the region, as it was when what lives last changed; 0: it was not, since it was told */
    uint32_t next;    /* of those to be told: site + 1, or EXACT_LAST; 0: it is none of them */
    uint64_t native_bytes, temporary_bytes;
    uint32_t site;
};
_Static_assert(sizeof(struct exact_cell) <= 64, "it is a cache line");
#define EXACT_LAST UINT32_MAX

/* A stack that was here lately: where its frames stood, the innermost first. */
struct exact_memo {
    uint64_t place; /* 0: none */
    struct exact_cell *cell;
    uint64_t deaths;                          /* of code objects, until then */
    uint64_t callers[EXACT_MEMO_CALLERS + 1]; /* ends with a 0, where no frame can stand */
};
_Static_assert(sizeof(struct exact_memo) == 1 << EXACT_MEMO_SHIFT, "they are found by it");

/* One slot's. Its threads' sites stay, as what they are was told. */
struct exact_thread {
    const struct wire_region *region;
    const _Atomic uint64_t *finalizing; /* of _PyRuntimeState's */
    void *(*current_state)(void);
    struct sites_fields fields;
    uint32_t first_listed; /* as a cell's next */
    uint64_t newest;       /* the block that was given out last */
    /* Of regions of blocks that were looked at lately. */
    struct exact_leaf {
        uint64_t base; /* 1, where no block is: none */
        blocks_entry *entries;
    } leaves[EXACT_LEAVES];
    struct exact_memo memos[1 << EXACT_MEMO_BITS];
    struct sites sites;
    struct exact_cell *pages[EXACT_PAGES];
    struct detached_memo detached;
};
/* The calling thread's; NULL: it is not known yet, or none. */
extern __thread struct exact_thread *exact_own __attribute__((tls_model("initial-exec")));

/* Python's allocators are not called by what interrupts them: that the thread is busy need not be asked. */
static inline bool exact_is_counting(const struct exact_thread *exact) {
    return exact != NULL && atomic_load_explicit(exact->finalizing, memory_order_relaxed) == 0;
}

static inline bool exact_is_quick(const struct exact_thread *exact) {
    return !busy_flag && exact_is_counting(exact);
}

/* Nothing is copied or called meanwhile that would want to know more of it than that the thread is busy. */
static inline void exact_begin_quick(void) {
    busy_flag = true;
    atomic_signal_fence(memory_order_seq_cst);
}

static inline void exact_end_quick(void) {
    atomic_signal_fence(memory_order_seq_cst);
    busy_flag = false;
}

/* Where the leaf of an address is, if it is known. */
static inline size_t exact_leaf_index(uint64_t address) {
    return address / BLOCKS_REGION_BYTES % EXACT_LEAVES;
}

/* What all addresses of its leaf have in common. Odd granules have leaves of their own. */
static inline uint64_t exact_leaf_base(uint64_t address) {
    return address & ~(uint64_t)(BLOCKS_REGION_BYTES - BLOCKS_GRANULE_BYTES);
}

/* The entry of an address in a leaf that was looked at lately; NULL: it is in another one. */
static inline blocks_entry *exact_entry_nearby(const struct exact_thread *exact, uint64_t address) {
    const struct exact_leaf *leaf = &exact->leaves[exact_leaf_index(address)];
    if (__builtin_expect(exact_leaf_base(address) != leaf->base, 0))
        return NULL;
    return &leaf->entries[address % BLOCKS_REGION_BYTES / BLOCKS_GRANULE_BYTES];
}

static inline struct exact_memo *exact_memo(struct exact_thread *exact, uint64_t place, uint64_t frame) {
    /* Frames stand eight bytes apart, and calls no less. */
    enum { SHIFT = EXACT_MEMO_SHIFT - 3 };
    uint64_t offset = (place ^ frame) << SHIFT &
                      ((UINT64_C(1) << (EXACT_MEMO_BITS + EXACT_MEMO_SHIFT)) - (UINT64_C(1) << EXACT_MEMO_SHIFT));
    return (struct exact_memo *)(void *)((char *)exact->memos + offset);
}

/* Whether the callers stand where they did. */
static inline bool exact_is_same(const struct sites_fields *fields, const struct exact_memo *memo, uint64_t frame) {
    const uint32_t previous = fields->previous, instruction = fields->instruction;
    const uint64_t *caller = memo->callers;
#pragma GCC unroll 4
    while ((frame = load_u64((const char *)pointer_to(frame) + previous)) != 0)
        if (load_u64((const char *)pointer_to(frame) + instruction) != *caller++)
            return false;
    return *caller == 0;
}

static inline bool exact_is_paused(const struct exact_thread *exact) {
    return atomic_load_explicit(&exact->region->control, memory_order_relaxed) == WIRE_CONTROL_PAUSE;
}

static inline uint32_t exact_peak_id(const struct exact_thread *exact) {
    return atomic_load_explicit(&exact->region->peak_id, memory_order_relaxed);
}

/* A block of less than BLOCKS_SIZE_BEHIND bytes was given out, in the thread with this state, from 3.13 on. False when
 * that has not been counted. */
static inline __attribute__((always_inline)) bool exact_quick_given(uint64_t address, size_t size_bytes,
                                                                    const void *state) {
    struct exact_thread *exact = exact_own;
    if (!exact_is_counting(exact) || state == NULL || exact_is_paused(exact))
        return false;
    uint64_t frame = load_u64((const char *)state + exact->fields.current_frame);
    if (frame == 0)
        return false;
    uint64_t place = load_u64((const char *)pointer_to(frame) + exact->fields.instruction);
    const struct exact_memo *memo = exact_memo(exact, place, frame);
    if (memo->place != place || memo->deaths != codes_all_deaths() || !exact_is_same(&exact->fields, memo, frame))
        return false;
    struct exact_cell *cell = memo->cell;
    blocks_entry *entry = exact_entry_nearby(exact, address);
    if (cell == NULL || entry == NULL || cell->peak_id != exact_peak_id(exact))
        return false;
    exact_begin_quick();
    cell->alloc_bytes += size_bytes;
    cell->alloc_count++;
    exact->newest = address;
    atomic_store_explicit(entry, cell->site << BLOCKS_SIZE_BITS | (uint32_t)size_bytes, memory_order_relaxed);
    exact_end_quick();
    return true;
}

/* A block is about to be given back. False as above. */
static inline __attribute__((always_inline)) bool exact_quick_back(uint64_t address) {
    struct exact_thread *exact = exact_own;
    if (!exact_is_counting(exact))
        return false;
    blocks_entry *entry = exact_entry_nearby(exact, address);
    uint32_t value = entry != NULL ? atomic_load_explicit(entry, memory_order_relaxed) : 0;
    uint32_t size_bytes = value & BLOCKS_SIZE_BEHIND, site = value >> BLOCKS_SIZE_BITS;
    struct exact_cell *page = exact->pages[site / EXACT_CELLS_IN_PAGE];
    if (size_bytes - 1 >= BLOCKS_SIZE_BEHIND - 1 || page == NULL)
        return false;
    struct exact_cell *cell = &page[site % EXACT_CELLS_IN_PAGE];
    if (cell->peak_id != exact_peak_id(exact))
        return false;
    exact_begin_quick();
    atomic_store_explicit(entry, 0, memory_order_relaxed);
    cell->gone_bytes += size_bytes;
    cell->gone_count++;
    if (exact->newest == address)
        cell->temporary_bytes += size_bytes;
    exact_end_quick();
    return true;
}

#endif
