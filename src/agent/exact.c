#include "agent/exact.h"

#include "agent/agent.h"
#include "agent/blocks.h"
#include "agent/busy.h"
#include "agent/clock.h"
#include "agent/load.h"
#include "agent/sites.h"

#include <sys/mman.h>

enum {
    CELLS_IN_PAGE = 512,
    PAGES = BLOCKS_MAX_SITES / CELLS_IN_PAGE,
    ORPHANS = 1024,
    ORPHAN_SITE_SHIFT = 42,
    RETRY_BLOCKS = 4096, /* a thread that has no ring asks again after so many */
};

/* What a thread has done with a site's blocks since it last said so. What lives of it is what was allocated and is not
 * gone; a block that moves from one site to another as it grows is gone there, and here less is gone. */
struct cell {
    uint64_t alloc_bytes;
    int64_t gone_bytes;
    int64_t before_bytes; /* what of it came before peak_id was seen to change */
    uint32_t alloc_count;
    int32_t gone_count;
    uint32_t peak_id; /* of the region, as it was when what lives last changed */
    uint32_t next;    /* of those to be told: site + 1, or LAST; 0: it is none of them */
    uint64_t native_bytes, temporary_bytes;
    uint32_t site; /* once it was listed */
};
_Static_assert(sizeof(struct cell) <= 64, "it is a cache line");
enum { LAST = UINT32_MAX };

enum { MEMO_BITS = 9, MEMO_CALLERS = 13 };
/* A stack that was here lately: each frame, and where it stood. */
struct memo {
    uint64_t frame; /* the innermost; 0: none */
    uint64_t place;
    struct cell *cell;
    uint32_t deaths; /* of code objects, until then */
    uint32_t count;
    struct memo_caller {
        uint64_t frame, place;
    } callers[MEMO_CALLERS];
};

/* One slot's. Its threads' sites stay, as what they are was told. */
struct exact_thread {
    const struct wire_region *region;
    const _Atomic uint64_t *finalizing; /* of _PyRuntimeState's */
    void *(*current_state)(void);
    struct sites_fields fields;
    uint32_t first_listed; /* as cell.next */
    uint64_t newest;       /* the block that was given out last */
    uint64_t leaf_base;    /* of the region of blocks that were looked at last: 1 when there is none */
    blocks_entry *leaf;
    struct memo memos[1 << MEMO_BITS];
    struct sites sites;
    struct cell *pages[PAGES];
};
/* The calling thread's; NULL: it is not known yet, or none. */
static __thread struct exact_thread *own __attribute__((tls_model("initial-exec")));

/* Given back by whom that could not be told; for whichever thread can next: site << 42 | size; 0: free. */
static _Atomic uint64_t orphans[ORPHANS];
static _Atomic uint32_t orphan_count;

static void *map_zeros(size_t size_bytes) {
    void *zeros = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return zeros == MAP_FAILED ? NULL : zeros;
}

static void count_lost(struct wire_region *region) {
    atomic_fetch_add_explicit(&region->lost_memory_records, 1, memory_order_relaxed);
}

static struct exact_thread *make(struct wire_region *region) {
    static const _Atomic uint64_t never;
    const struct agent_python *python = agent_python();
    struct exact_thread *exact = map_zeros(sizeof *exact);
    if (exact == NULL)
        return NULL;
    layout_offset finalizing = python->layout.runtime.finalizing;
    exact->region = region;
    exact->finalizing =
        finalizing == OFFSET_NONE ? &never : (const _Atomic uint64_t *)pointer_to(python->runtime + finalizing);
    exact->current_state = python->current_state;
    exact->fields = sites_fields_of(&python->layout);
    exact->first_listed = LAST;
    exact->leaf_base = 1;
    return exact;
}

static struct exact_thread *exact_of(struct agent_thread *thread) {
    if (own == NULL && thread->exact == NULL)
        thread->exact = make(agent_region());
    return own = thread->exact;
}

static struct exact_thread *own_exact(void) {
    static __thread uint32_t refused __attribute__((tls_model("initial-exec")));
    struct agent_thread *thread = threads_current();
    if (thread == NULL && refused > 0) {
        refused--;
        return NULL;
    }
    if (thread == NULL && (thread = threads_adopt()) == NULL)
        refused = RETRY_BLOCKS;
    return thread != NULL ? exact_of(thread) : NULL;
}

static inline void list(struct exact_thread *exact, struct cell *cell, uint32_t site) {
    if (__builtin_expect(cell->next != 0, 1))
        return;
    cell->site = site;
    cell->next = exact->first_listed;
    exact->first_listed = site + 1;
}

static inline struct cell *known_cell(struct exact_thread *exact, uint32_t site) {
    struct cell *page = exact->pages[site / CELLS_IN_PAGE];
    return page != NULL ? &page[site % CELLS_IN_PAGE] : NULL;
}

static struct cell *cell_of(struct exact_thread *exact, uint32_t site) {
    struct cell **page = &exact->pages[site / CELLS_IN_PAGE];
    if (*page == NULL && (*page = map_zeros(CELLS_IN_PAGE * sizeof **page)) == NULL)
        return NULL;
    struct cell *cell = &(*page)[site % CELLS_IN_PAGE];
    list(exact, cell, site);
    return cell;
}

/* Before what lives changes. */
static inline void save(const struct wire_region *region, struct cell *cell) {
    uint32_t peak_id = atomic_load_explicit(&region->peak_id, memory_order_relaxed);
    if (__builtin_expect(cell->peak_id == peak_id, 1))
        return;
    cell->peak_id = peak_id;
    cell->before_bytes = (int64_t)cell->alloc_bytes - cell->gone_bytes;
}

static void go(const struct wire_region *region, struct cell *cell, int64_t bytes, int32_t count) {
    save(region, cell);
    cell->gone_bytes += bytes;
    cell->gone_count += count;
}

static void leave_orphan(const struct block *block) {
    uint64_t orphan = (uint64_t)block->site << ORPHAN_SITE_SHIFT | block->size_bytes;
    for (size_t i = 0; i < ORPHANS; i++) {
        uint64_t none = 0;
        if (atomic_compare_exchange_strong(&orphans[i], &none, orphan)) {
            atomic_fetch_add(&orphan_count, 1);
            return;
        }
    }
    struct wire_region *region = heap_region();
    if (region != NULL)
        count_lost(region);
}

static void take_back(struct wire_region *region, struct exact_thread *exact, const struct block *block) {
    struct cell *cell = cell_of(exact, block->site);
    if (cell != NULL)
        go(region, cell, (int64_t)block->size_bytes, 1);
    else
        count_lost(region);
}

static void adopt_orphans(struct wire_region *region, struct exact_thread *exact) {
    for (size_t i = 0; i < ORPHANS && atomic_load_explicit(&orphan_count, memory_order_relaxed) > 0; i++) {
        uint64_t orphan = atomic_exchange(&orphans[i], 0);
        if (orphan == 0)
            continue;
        atomic_fetch_sub(&orphan_count, 1);
        take_back(region, exact,
                  &(struct block){(uint32_t)(orphan >> ORPHAN_SITE_SHIFT),
                                  orphan & ((UINT64_C(1) << ORPHAN_SITE_SHIFT) - 1)});
    }
}

/* --- What heap.c tells. --- */

/* This thread's cell for where it is now. */
static struct cell *find_cell(struct exact_thread *exact) {
    uint64_t key = sites_key(agent_python());
    struct sites_chain *chain = sites_chain(&exact->sites, key);
    if (key != 0 && chain->key == key) {
        struct cell *known = chain->what;
        list(exact, known, known->site);
        return known;
    }
    uint32_t site = sites_find(&exact->sites, threads_current());
    struct cell *cell = cell_of(exact, site);
    if (key != 0 && site != WIRE_SITE_UNKNOWN && cell != NULL)
        *chain = (struct sites_chain){key, cell};
    return cell;
}

void exact_note_given(struct wire_region *region, const struct heap_block *block, uint32_t domain, bool is_final) {
    struct exact_thread *exact = own_exact();
    struct cell *cell = exact != NULL ? find_cell(exact) : NULL;
    if (cell == NULL || block->size_bytes >> ORPHAN_SITE_SHIFT != 0) {
        count_lost(region);
        atomic_fetch_add_explicit(&region->lost_memory_bytes, block->grown_bytes, memory_order_relaxed);
        return;
    }
    uint64_t address = (uint64_t)(uintptr_t)block->address;
    bool is_new = block->grown_bytes == block->size_bytes;
    struct block before;
    if (block->id != 0 && blocks_take(address, &before))
        take_back(region, exact, &before);
    save(region, cell);
    exact->newest = address;
    cell->alloc_bytes += block->grown_bytes;
    cell->alloc_count += is_new ? 1 : 0;
    cell->native_bytes += domain == WIRE_DOMAIN_PYTHON ? 0 : block->grown_bytes;
    /* What the interpreter asks for while it tears itself down is not kept by the program. */
    bool lives = !is_final && blocks_put(address, &(struct block){cell->site, block->size_bytes});
    uint64_t more_bytes = lives ? block->size_bytes : 0;
    cell->gone_bytes += (int64_t)block->grown_bytes - (int64_t)more_bytes;
    cell->gone_count += (is_new ? 1 : 0) - (lives ? 1 : 0);
    if (!lives && !is_final)
        count_lost(region);
}

/* The entry of an address, mostly in the same leaf as the one before. */
static inline blocks_entry *entry_of(struct exact_thread *exact, uint64_t address, bool make_it) {
    uint64_t in_region = BLOCKS_REGION_BYTES - BLOCKS_GRANULE_BYTES;
    if (__builtin_expect((address & ~in_region) == exact->leaf_base, 1))
        return &exact->leaf[(address & in_region) / BLOCKS_GRANULE_BYTES];
    blocks_entry *entry = blocks_find(address, make_it);
    if (entry != NULL) {
        exact->leaf_base = address & ~in_region;
        exact->leaf = entry - (address & in_region) / BLOCKS_GRANULE_BYTES;
    }
    return entry;
}

static inline bool is_quick(const struct exact_thread *exact) {
    return exact != NULL && !busy_flag && atomic_load_explicit(exact->finalizing, memory_order_relaxed) == 0;
}

/* Nothing is copied or called meanwhile that would want to know more of it than that the thread is busy. */
static inline void begin_quick(void) {
    busy_flag = true;
    atomic_signal_fence(memory_order_seq_cst);
}

static inline void end_quick(void) {
    atomic_signal_fence(memory_order_seq_cst);
    busy_flag = false;
}

/* Whether the callers are as they were. Where they are and what they say is compared with what is known of them, so
 * that the processor need not wait for one to find the next. */
static inline bool is_same(const struct sites_fields *told, const struct memo *memo) {
    const struct sites_fields fields = *told;
    const char *frame = pointer_to(memo->frame);
    const struct memo_caller *caller = memo->callers, *end = caller + memo->count;
    for (; caller != end; caller++) {
        if (load_u64(frame + fields.previous) != caller->frame)
            return false;
        frame = pointer_to(caller->frame);
        if (load_u64(frame + fields.instruction) != caller->place)
            return false;
    }
    return load_u64(frame + fields.previous) == 0;
}

/* The same where a place is two numbers. */
static __attribute__((noinline)) bool is_same_object(const struct sites_fields *fields, const struct memo *memo) {
    uint64_t frame = memo->frame;
    for (uint32_t i = 0; i < memo->count; i++) {
        if (sites_caller(fields, frame) != memo->callers[i].frame)
            return false;
        frame = memo->callers[i].frame;
        if (sites_place(fields, frame) != memo->callers[i].place)
            return false;
    }
    return sites_caller(fields, frame) == 0;
}

static void remember(const struct sites_fields *fields, struct memo *memo, uint64_t innermost, struct cell *cell) {
    uint32_t count = 0;
    memo->frame = 0;
    for (uint64_t frame = sites_caller(fields, innermost); frame != 0; frame = sites_caller(fields, frame)) {
        if (count == MEMO_CALLERS)
            return;
        memo->callers[count].frame = frame;
        memo->callers[count++].place = sites_place(fields, frame);
    }
    memo->count = count;
    memo->place = sites_place(fields, innermost);
    memo->deaths = codes_all_deaths();
    memo->cell = cell;
    memo->frame = innermost;
}

static __attribute__((noinline)) struct cell *cell_of_chain(struct exact_thread *exact, struct memo *memo,
                                                            uint64_t frame) {
    uint64_t key = sites_key_of_frames(&exact->fields, frame);
    struct sites_chain *chain = sites_chain(&exact->sites, key);
    if (chain->key != key)
        return NULL;
    remember(&exact->fields, memo, frame, chain->what);
    return chain->what;
}

/* NULL: it has to be found the long way. */
static inline struct cell *quick_cell(struct exact_thread *exact, uint64_t frame) {
    if (frame == 0)
        return NULL;
    uint64_t place = sites_place(&exact->fields, frame);
    struct memo *memo = &exact->memos[(place ^ frame) * UINT64_C(0x9e3779b97f4a7c15) >> (64 - MEMO_BITS)];
    if (memo->frame == frame && memo->place == place && memo->deaths == codes_all_deaths() &&
        (__builtin_expect(layout_has(exact->fields.last), 0) ? is_same_object(&exact->fields, memo)
                                                             : is_same(&exact->fields, memo)))
        return memo->cell;
    return cell_of_chain(exact, memo, frame);
}

bool exact_quick_given(uint64_t address, size_t size_bytes) {
    struct exact_thread *exact = own;
    if (size_bytes - 1 >= BLOCKS_SIZE_BEHIND - 1 || !is_quick(exact) ||
        atomic_load_explicit(&exact->region->control, memory_order_relaxed) == WIRE_CONTROL_PAUSE)
        return false;
    /* Who calls Python's allocators is attached. */
    const void *state = exact->current_state();
    struct cell *cell = state != NULL ? quick_cell(exact, sites_innermost(&exact->fields, state)) : NULL;
    if (cell == NULL)
        return false;
    begin_quick();
    blocks_entry *entry = entry_of(exact, address, true);
    if (entry != NULL) {
        save(exact->region, cell);
        cell->alloc_bytes += size_bytes;
        cell->alloc_count++;
        list(exact, cell, cell->site);
        exact->newest = address;
        atomic_store_explicit(entry, cell->site << BLOCKS_SIZE_BITS | (uint32_t)size_bytes, memory_order_relaxed);
    }
    end_quick();
    return entry != NULL;
}

bool exact_quick_back(uint64_t address) {
    struct exact_thread *exact = own;
    if (!is_quick(exact))
        return false;
    blocks_entry *entry = entry_of(exact, address, false);
    uint32_t value = entry != NULL ? atomic_load_explicit(entry, memory_order_relaxed) : 0;
    if (value == 0)
        return true;
    uint32_t size_bytes = value & BLOCKS_SIZE_BEHIND, site = value >> BLOCKS_SIZE_BITS;
    struct cell *cell = known_cell(exact, site);
    if (size_bytes == BLOCKS_SIZE_BEHIND || cell == NULL)
        return false;
    begin_quick();
    atomic_store_explicit(entry, 0, memory_order_relaxed);
    save(exact->region, cell);
    cell->gone_bytes += size_bytes;
    cell->gone_count++;
    cell->temporary_bytes += exact->newest == address ? size_bytes : 0;
    list(exact, cell, site);
    end_quick();
    return true;
}

void exact_give_back(uint64_t address, bool is_busy, bool is_final) {
    struct block block;
    struct wire_region *region = heap_region();
    if (!blocks_take(address, &block) || region == NULL || is_final)
        return;
    struct agent_thread *thread = threads_current();
    struct exact_thread *exact = thread != NULL && is_busy ? exact_of(thread) : NULL;
    struct cell *cell = exact != NULL ? cell_of(exact, block.site) : NULL;
    if (cell == NULL) {
        leave_orphan(&block);
        return;
    }
    go(region, cell, (int64_t)block.size_bytes, 1);
    if (exact->newest == address)
        cell->temporary_bytes += block.size_bytes;
}

bool exact_take_out(uint64_t address, struct sampled *block) {
    struct block taken;
    if (!blocks_take(address, &taken))
        return false;
    *block = (struct sampled){.address = address, .id = taken.site, .size_bytes = taken.size_bytes};
    return true;
}

void exact_keep(const struct sampled *block, uint64_t address, uint64_t size_bytes, bool is_busy, bool is_final) {
    struct block kept = {(uint32_t)block->id, block->size_bytes};
    struct wire_region *region = heap_region();
    struct agent_thread *thread = threads_current();
    struct exact_thread *exact = region != NULL && thread != NULL && is_busy ? exact_of(thread) : NULL;
    struct cell *cell = exact != NULL ? cell_of(exact, kept.site) : NULL;
    /* What it grows by comes to exact_note_given next. */
    if (size_bytes < kept.size_bytes && cell != NULL) {
        if (!is_final)
            go(region, cell, (int64_t)kept.size_bytes - (int64_t)size_bytes, 0);
        kept.size_bytes = size_bytes;
    }
    if (!blocks_put(address, &kept))
        leave_orphan(&kept);
}

/* --- What strobe is told. --- */

static bool tell(struct agent_thread *thread, uint32_t site, const struct cell *cell) {
    uint64_t position = wire_ring_position(&thread->ring);
    struct wire_counts *record = wire_ring_reserve(&thread->ring, &position, WIRE_COUNTS, sizeof *record);
    if (record == NULL)
        return false;
    record->time_ns = clock_now_ns();
    record->site = site;
    record->slot = threads_index(thread);
    record->alloc_bytes = cell->alloc_bytes;
    record->alloc_count = cell->alloc_count;
    record->python_bytes = cell->alloc_bytes - cell->native_bytes;
    record->temporary_bytes = cell->temporary_bytes;
    record->live_bytes = (int64_t)cell->alloc_bytes - cell->gone_bytes;
    record->live_count = (int64_t)cell->alloc_count - (int64_t)cell->gone_count;
    record->before_bytes = cell->before_bytes;
    record->peak_id = cell->peak_id;
    wire_ring_commit(&thread->ring, position);
    return true;
}

void exact_flush(struct wire_region *region, bool everything) {
    struct agent_thread *thread = threads_current();
    struct exact_thread *exact = thread != NULL ? thread->exact : NULL;
    if (exact == NULL)
        return;
    if (atomic_load_explicit(&orphan_count, memory_order_relaxed) > 0)
        adopt_orphans(region, exact);
    if (!sites_tell_rest(&exact->sites, thread, everything))
        return;
    while (exact->first_listed != LAST && (everything || sites_have_room(&thread->ring))) {
        uint32_t site = exact->first_listed - 1;
        struct cell *cell = &exact->pages[site / CELLS_IN_PAGE][site % CELLS_IN_PAGE];
        if (!tell(thread, site, cell))
            return;
        exact->first_listed = cell->next;
        /* Its site stays, as chains lead to it. */
        *cell = (struct cell){.peak_id = cell->peak_id, .site = site};
    }
}

void exact_end_thread(void) {
    own = NULL;
}

void exact_forget(void) {
    for (size_t i = 0; i < ORPHANS; i++)
        atomic_store(&orphans[i], 0);
    atomic_store(&orphan_count, 0);
    own = NULL;
    sites_forget();
}
