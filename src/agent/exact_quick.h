/* What --memory exact does for what Python's allocators hand out most: small blocks in a thread that has its state,
 * whose stack, cell and neighbourhood are known. Here, so that the hooks need not call it, and without calls, so that
 * it needs no stack. The rest: exact_given, exact_back (agent/exact.h). */
#ifndef STROBE_AGENT_EXACT_QUICK_H
#define STROBE_AGENT_EXACT_QUICK_H

#include "agent/blocks.h"
#include "agent/busy.h"
#include "agent/exact_detached.h"
#include "agent/load.h"
#include "agent/sampled.h"
#include "agent/sites.h"
#include "wire/region.h"

enum {
    EXACT_CELLS_IN_PAGE = 4096,
    EXACT_PAGES = BLOCKS_MAX_SITES / EXACT_CELLS_IN_PAGE,
    EXACT_LEAVES = 8,
    /* _PyInterpreterFrame's previous and instr_ptr (pycore_frame.h 3.13, pycore_interpframe_structs.h 3.14 and 3.15).
     */
    EXACT_USUAL_PREVIOUS = 8,
    EXACT_USUAL_INSTRUCTION = 56,
    EXACT_ENTRIES = BLOCKS_REGION_BYTES / BLOCKS_GRANULE_BYTES, /* of a leaf */
    EXACT_SITE_UNKNOWN = BLOCKS_MAX_SITES - 1, /* here for WIRE_SITE_UNKNOWN, as a block's site is not 0 */
};

/* What a thread has done with a site's blocks since it last said so. What lives of it is what was allocated and is not
 * gone; a block that moves from one site to another as it grows is gone there, and here less is gone. */
struct exact_cell {
    uint64_t alloc_bytes;
    int64_t gone_bytes;
    int64_t before_bytes; /* what of it came before `moment` was seen to change */
    uint32_t alloc_count;
    int32_t gone_count;
    uint64_t moment; /* exact_moment() when what lives last changed; 0: it was not, since it was told */
    uint64_t native_bytes, temporary_bytes;
    uint32_t mark; /* the site, as the entries of its blocks have it: site << BLOCKS_SIZE_BITS */
    uint32_t next; /* of those to be told: site + 1, or EXACT_LAST; 0: it is none of them */
};
_Static_assert(sizeof(struct exact_cell) == 64, "it is a cache line");
#define EXACT_LAST UINT32_MAX

/* A region of blocks that was looked at lately: its address and its entries. */
struct exact_leaf {
    uint64_t base; /* 1, where no block is: none */
    blocks_entry *entries;
};

/* One slot's. Its threads' sites stay, as what they are was told. */
struct exact_thread {
    const struct wire_region *region;
    const _Atomic uint64_t *finalizing; /* of _PyRuntimeState's */
    uint64_t newest;                    /* the block that was given out last */
    struct exact_leaf leaf;             /* the last one */
    struct sites_fields fields;
    uint32_t first_listed; /* as a cell's next */
    void *(*current_state)(void);
    struct exact_leaf leaves[EXACT_LEAVES];
    struct sites sites;
    struct exact_cell *pages[EXACT_PAGES]; /* exact_no_cells: none is there yet */
    struct detached_memo detached;
};
/* A thread's (busy_thread.exact) that is not known yet, or has none. It is never counting, so that who asks that need
 * ask nothing else. */
extern struct exact_thread exact_none;
/* Of these nothing is ever changed, nor are they constant, so that they take no room in the file. */
extern struct exact_cell exact_no_cells[EXACT_CELLS_IN_PAGE];

/* Python's allocators are not called by what interrupts them: that the thread is busy need not be asked. */
static inline bool exact_is_counting(const struct exact_thread *exact) {
    /* No atomic load, which compilers do not compare in place. */
    return load_u64(exact->finalizing) == 0;
}

static inline bool exact_is_quick(const struct exact_thread *exact) {
    return !busy_thread.flag && exact_is_counting(exact);
}

/* Nothing is copied or called meanwhile that would want to know more of it than that the thread is busy. */
static inline void exact_begin_quick(void) {
    busy_thread.flag = true;
    atomic_signal_fence(memory_order_seq_cst);
}

static inline void exact_end_quick(void) {
    atomic_signal_fence(memory_order_seq_cst);
    busy_thread.flag = false;
}

/* The number of an address's entry in a leaf; EXACT_ENTRIES and more: it is in another one. Odd granules have leaves of
 * their own: in that of the others they are far out, by the bits that come round. */
static inline uint64_t exact_place_in(const struct exact_leaf *leaf, uint64_t address) {
    uint64_t offset = address - leaf->base;
    return offset / BLOCKS_GRANULE_BYTES | offset << (64 - BLOCKS_GRANULE_BITS);
}

/* Where the leaf of an address is, if it was looked at lately, and is not the last one. */
static inline struct exact_leaf *exact_leaf_of(struct exact_thread *exact, uint64_t address) {
    return &exact->leaves[address / BLOCKS_REGION_BYTES % EXACT_LEAVES];
}

/* Makes the leaf that an address is in the last one, and says the number of its entry, if it was looked at lately. */
static inline uint64_t exact_place_nearby(struct exact_thread *exact, uint64_t address) {
    uint64_t place = exact_place_in(&exact->leaf, address);
    if (__builtin_expect(place < EXACT_ENTRIES, 1))
        return place;
    const struct exact_leaf *leaf = exact_leaf_of(exact, address);
    place = exact_place_in(leaf, address);
    if (place < EXACT_ENTRIES)
        exact->leaf = *leaf;
    return place;
}

/* The cell that blocks with this entry are counted in, if their thread's are known. */
static inline struct exact_cell *exact_cell_at(const struct exact_thread *exact, uint32_t value) {
    enum { CELL_BITS = 6 };
    _Static_assert(sizeof(struct exact_cell) == 1 << CELL_BITS, "a cell is found by the bits of its site");
    char *page = (char *)exact->pages[value / ((uint32_t)EXACT_CELLS_IN_PAGE << BLOCKS_SIZE_BITS)];
    uint32_t offset = value >> (BLOCKS_SIZE_BITS - CELL_BITS) & ((uint32_t)(EXACT_CELLS_IN_PAGE - 1) << CELL_BITS);
    return (struct exact_cell *)(void *)(page + offset);
}

_Static_assert(WIRE_CONTROL_SAMPLE == 0 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ &&
                   offsetof(struct wire_region, peak_id) == offsetof(struct wire_region, control) + 4,
               "a moment has the peak's number in its upper half, and below nothing");

static inline bool exact_is_paused(const struct exact_thread *exact) {
    return atomic_load_explicit(&exact->region->control, memory_order_relaxed) == WIRE_CONTROL_PAUSE;
}

/* Changes with the peak, and is none that a cell has while sampling is paused. */
static inline uint64_t exact_moment(const struct exact_thread *exact) {
    return load_u64(&exact->region->control);
}

/* What it is where sampling is not paused; and which peak that was. */
static inline uint64_t exact_moment_sampling(const struct exact_thread *exact) {
    return (uint64_t)atomic_load_explicit(&exact->region->peak_id, memory_order_relaxed) << 32;
}
static inline uint32_t exact_peak_id(uint64_t moment) {
    return (uint32_t)(moment >> 32);
}

/* What a thread's frames are: which one it is is known where the following is compiled. */
enum exact_frames {
    EXACT_FRAMES_OBJECTS, /* up to 3.10 */
    EXACT_FRAMES_LINKED,  /* from 3.11 on */
    EXACT_FRAMES_USUAL,   /* these, where they are as in all versions from 3.13 on so far */
};

static inline enum exact_frames exact_frames_of(const struct layout *layout) {
    if (layout_has(layout->thread.frame))
        return EXACT_FRAMES_OBJECTS;
    bool is_usual = layout_has(layout->thread.current_frame) && layout->frame.previous == EXACT_USUAL_PREVIOUS &&
                    layout->frame.instr_ptr == EXACT_USUAL_INSTRUCTION;
    return is_usual ? EXACT_FRAMES_USUAL : EXACT_FRAMES_LINKED;
}

static inline __attribute__((always_inline)) struct exact_cell *exact_cell_of_key(struct exact_thread *exact,
                                                                                  uint64_t key) {
    const struct sites_chain *chain = sites_chain(&exact->sites, key);
    if (__builtin_expect(chain->key != key, 0))
        return NULL;
    struct exact_cell *cell = chain->what;
    if (cell == NULL)
        __builtin_unreachable();
    return cell;
}

/* The key of this thread's stack and what is kept for it: as sites_key_of_frames and sites_chain say, without a limit,
 * as the interpreter itself follows the frames to their end. NULL: nothing is. */
static inline __attribute__((always_inline)) struct exact_cell *
exact_cell_of_frames(struct exact_thread *exact, uint64_t frame, uint32_t previous, uint32_t instruction) {
    uint64_t key = atomic_load_explicit(&codes_generation, memory_order_relaxed);
    do {
        key = sites_mix(key, load_u64((const char *)pointer_to(frame) + instruction));
        frame = load_u64((const char *)pointer_to(frame) + previous);
    } while (frame != 0);
    return exact_cell_of_key(exact, key);
}

/* The same where frames are objects. */
static inline __attribute__((always_inline)) struct exact_cell *exact_cell_of_objects(struct exact_thread *exact,
                                                                                      uint64_t frame) {
    const struct sites_fields fields = exact->fields;
    uint64_t key = atomic_load_explicit(&codes_generation, memory_order_relaxed);
    do {
        key = sites_mix(key, sites_place_in_code(&fields, frame));
        frame = sites_caller(&fields, frame);
    } while (frame != 0);
    return exact_cell_of_key(exact, key);
}

static inline __attribute__((always_inline)) struct exact_cell *
exact_cell_of_kind(struct exact_thread *exact, uint64_t frame, enum exact_frames kind) {
    if (kind == EXACT_FRAMES_USUAL)
        return exact_cell_of_frames(exact, frame, EXACT_USUAL_PREVIOUS, EXACT_USUAL_INSTRUCTION);
    if (kind == EXACT_FRAMES_LINKED)
        return exact_cell_of_frames(exact, frame, exact->fields.previous, exact->fields.instruction);
    return exact_cell_of_objects(exact, frame);
}

/* The following are done while the thread is busy: what interrupts them tells what has been counted so far, and looks
 * at other leaves. False: it has to be done the long way, and nothing is changed. */
static inline __attribute__((always_inline)) bool exact_count_given(struct exact_thread *exact, uint64_t address,
                                                                    size_t size_bytes, struct exact_cell *cell) {
    if (__builtin_expect(cell == NULL || cell->moment != exact_moment(exact), 0))
        return false;
    uint64_t place = exact_place_nearby(exact, address);
    if (__builtin_expect(place >= EXACT_ENTRIES, 0))
        return false;
    cell->alloc_bytes += size_bytes;
    cell->alloc_count++;
    exact->newest = address;
    atomic_store_explicit(&exact->leaf.entries[place], cell->mark | (uint32_t)size_bytes, memory_order_relaxed);
    return true;
}

static inline __attribute__((always_inline)) bool exact_count_back(struct exact_thread *exact, uint64_t address) {
    uint64_t place = exact_place_nearby(exact, address);
    if (__builtin_expect(place >= EXACT_ENTRIES, 0))
        return false;
    blocks_entry *entry = &exact->leaf.entries[place];
    uint32_t value = atomic_load_explicit(entry, memory_order_relaxed), size_bytes = value & BLOCKS_SIZE_BEHIND;
    struct exact_cell *cell = exact_cell_at(exact, value);
    if (__builtin_expect(size_bytes == BLOCKS_SIZE_BEHIND || cell->moment != exact_moment(exact), 0))
        return false;
    atomic_store_explicit(entry, 0, memory_order_relaxed);
    cell->gone_bytes += size_bytes;
    cell->gone_count++;
    if (__builtin_expect(exact->newest == address, 0))
        cell->temporary_bytes += size_bytes;
    return true;
}

static inline bool exact_find_and_clear(struct exact_thread *exact, uint64_t address, struct sampled *block) {
    uint64_t place = exact_place_nearby(exact, address);
    if (place >= EXACT_ENTRIES)
        return false;
    blocks_entry *entry = &exact->leaf.entries[place];
    uint32_t value = atomic_load_explicit(entry, memory_order_relaxed), size_bytes = value & BLOCKS_SIZE_BEHIND;
    if (value == 0 || size_bytes == BLOCKS_SIZE_BEHIND)
        return false;
    atomic_store_explicit(entry, 0, memory_order_relaxed);
    *block = (struct sampled){.address = address, .id = value >> BLOCKS_SIZE_BITS, .size_bytes = size_bytes};
    return true;
}

/* A block of less than BLOCKS_SIZE_BEHIND bytes, and not of none, was given out in the thread with this state, which is
 * attached. False when that has not been counted, as when it is none. */
static inline __attribute__((always_inline)) bool exact_quick_given(uint64_t address, size_t size_bytes,
                                                                    const void *state, enum exact_frames kind) {
    struct exact_thread *exact = busy_thread.exact;
    if (__builtin_expect(!exact_is_counting(exact) || state == NULL, 0))
        return false;
    uint64_t frame = kind == EXACT_FRAMES_LINKED ? sites_innermost(&exact->fields, state)
                                                 : load_u64((const char *)state + exact->fields.current_frame);
    if (__builtin_expect(frame == 0, 0))
        return false;
    exact_begin_quick();
    struct exact_cell *cell = exact_cell_of_kind(exact, frame, kind);
    bool is_counted = exact_count_given(exact, address, size_bytes, cell);
    exact_end_quick();
    return is_counted;
}

/* A block is about to be given back. False as above. */
static inline __attribute__((always_inline)) bool exact_quick_back(uint64_t address) {
    struct exact_thread *exact = busy_thread.exact;
    if (__builtin_expect(!exact_is_counting(exact), 0))
        return false;
    exact_begin_quick();
    bool is_counted = exact_count_back(exact, address);
    exact_end_quick();
    return is_counted;
}

/* A small block is about to be resized: exact_take_out. False as above. */
static inline bool exact_quick_take_out(uint64_t address, struct sampled *block) {
    struct exact_thread *exact = busy_thread.exact;
    if (!exact_is_quick(exact))
        return false;
    exact_begin_quick();
    bool is_taken = exact_find_and_clear(exact, address, block);
    exact_end_quick();
    return is_taken;
}

#endif
