#include "agent/exact.h"

#include "agent/agent.h"
#include "agent/blocks.h"
#include "agent/busy.h"
#include "agent/clock.h"
#include "agent/exact_quick.h"
#include "agent/load.h"
#include "agent/sites.h"

#include <errno.h>
#include <sys/mman.h>

enum {
    ORPHANS = 1024,
    ORPHAN_SITE_SHIFT = 42,
    RETRY_BLOCKS = 4096, /* a thread that has no ring asks again after so many */
};

struct exact_thread exact_none;
__thread struct busy_thread busy_thread = {.exact = &exact_none};
struct exact_cell exact_no_cells[EXACT_CELLS_IN_PAGE];

/* Given back by whom that could not be told; for whichever thread can next: site << 42 | size; 0: free. */
static _Atomic uint64_t orphans[ORPHANS];
static _Atomic uint32_t orphan_count;

static void *map_zeros(size_t size_bytes) {
    void *zeros = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return zeros == MAP_FAILED ? NULL : zeros;
}

/* Never written to. */
static struct exact_cell *no_cells(void) {
    return (struct exact_cell *)(uintptr_t)exact_no_cells;
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
    exact->first_listed = EXACT_LAST;
    exact->leaf.base = 1;
    for (size_t i = 0; i < EXACT_LEAVES; i++)
        exact->leaves[i].base = 1;
    for (size_t i = 0; i < EXACT_PAGES; i++)
        exact->pages[i] = no_cells();
    sites_begin(&exact->sites);
    return exact;
}

static struct exact_thread *exact_of(struct agent_thread *thread) {
    if (thread->exact == NULL && (thread->exact = make(agent_region())) == NULL)
        return NULL;
    return busy_thread.exact = thread->exact;
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

/* NULL: its page is not there yet. */
static struct exact_cell *known_cell(struct exact_thread *exact, uint32_t site) {
    struct exact_cell *page = exact->pages[site / EXACT_CELLS_IN_PAGE];
    if (page == no_cells())
        return NULL;
    struct exact_cell *cell = &page[site % EXACT_CELLS_IN_PAGE];
    cell->mark = site << BLOCKS_SIZE_BITS;
    return cell;
}

static struct exact_cell *cell_of(struct exact_thread *exact, uint32_t site) {
    struct exact_cell **page = &exact->pages[site / EXACT_CELLS_IN_PAGE];
    if (*page == no_cells()) {
        struct exact_cell *cells = map_zeros(EXACT_CELLS_IN_PAGE * sizeof *cells);
        if (cells == NULL)
            return NULL;
        *page = cells;
    }
    return known_cell(exact, site);
}

static uint32_t site_of(const struct exact_cell *cell) {
    return cell->mark >> BLOCKS_SIZE_BITS;
}

/* Before what lives of it changes. */
static void touch(struct exact_thread *exact, struct exact_cell *cell) {
    uint64_t moment = exact_moment_sampling(exact);
    if (cell->moment == moment)
        return;
    cell->moment = moment;
    cell->before_bytes = (int64_t)cell->alloc_bytes - cell->gone_bytes;
    if (cell->next != 0)
        return;
    cell->next = exact->first_listed;
    exact->first_listed = site_of(cell) + 1;
}

static void go(struct exact_thread *exact, struct exact_cell *cell, int64_t bytes, int32_t count) {
    touch(exact, cell);
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
    struct exact_cell *cell = cell_of(exact, block->site);
    if (cell != NULL)
        go(exact, cell, (int64_t)block->size_bytes, 1);
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
static struct exact_cell *find_cell(struct exact_thread *exact) {
    const struct agent_python *python = agent_python();
    struct exact_cell *kept = detached_find(&exact->detached, python);
    uint64_t key = kept == NULL ? sites_key(python) : 0;
    struct sites_chain *chain = sites_chain(&exact->sites, key);
    if (kept != NULL || (key != 0 && chain->key == key))
        return kept != NULL ? kept : chain->what;
    uint32_t site = sites_find(&exact->sites, threads_current());
    struct exact_cell *cell = cell_of(exact, site != WIRE_SITE_UNKNOWN ? site : EXACT_SITE_UNKNOWN);
    if (site == WIRE_SITE_UNKNOWN || cell == NULL)
        return cell;
    if (key != 0)
        *chain = (struct sites_chain){key, cell};
    else
        detached_note(&exact->detached, python, &exact->fields, cell);
    return cell;
}

void exact_note_given(struct wire_region *region, const struct heap_block *block, uint32_t domain, bool is_final) {
    struct exact_thread *exact = own_exact();
    struct exact_cell *cell = exact != NULL ? find_cell(exact) : NULL;
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
    touch(exact, cell);
    exact->newest = address;
    cell->alloc_bytes += block->grown_bytes;
    cell->alloc_count += is_new ? 1 : 0;
    cell->native_bytes += domain == WIRE_DOMAIN_PYTHON ? 0 : block->grown_bytes;
    /* What the interpreter asks for while it tears itself down is not kept by the program. */
    bool lives = !is_final && blocks_put(address, &(struct block){site_of(cell), block->size_bytes});
    uint64_t more_bytes = lives ? block->size_bytes : 0;
    cell->gone_bytes += (int64_t)block->grown_bytes - (int64_t)more_bytes;
    cell->gone_count += (is_new ? 1 : 0) - (lives ? 1 : 0);
    if (!lives && !is_final)
        count_lost(region);
}

/* --- The quick way. --- */

/* The entry of an address whose leaf was not looked at lately. The thread is busy. */
static blocks_entry *turn_leaf(struct exact_thread *exact, uint64_t address, bool make_it) {
    int error = errno;
    blocks_entry *entry = blocks_find(address, make_it);
    uint64_t base = address & ~(uint64_t)(BLOCKS_REGION_BYTES - BLOCKS_GRANULE_BYTES);
    /* The first region is never near, so that NULL is not. */
    if (entry != NULL && base >= BLOCKS_REGION_BYTES)
        *exact_leaf_of(exact, address) = exact->leaf =
            (struct exact_leaf){base, entry - address % BLOCKS_REGION_BYTES / BLOCKS_GRANULE_BYTES};
    errno = error;
    return entry;
}

/* The thread is busy. */
static inline blocks_entry *entry_of(struct exact_thread *exact, uint64_t address, bool make_it) {
    uint64_t place = exact_place_nearby(exact, address);
    return place < EXACT_ENTRIES ? &exact->leaf.entries[place] : turn_leaf(exact, address, make_it);
}

/* The thread is busy. */
static bool put(struct exact_thread *exact, uint64_t address, const struct block *block) {
    if (block->size_bytes - 1 >= BLOCKS_SIZE_BEHIND - 1) {
        int error = errno;
        bool is_put = block->size_bytes > 0 && blocks_put(address, block);
        errno = error;
        return is_put;
    }
    blocks_entry *entry = entry_of(exact, address, true);
    if (entry == NULL)
        return false;
    atomic_store_explicit(entry, block->site << BLOCKS_SIZE_BITS | (uint32_t)block->size_bytes, memory_order_relaxed);
    return true;
}

/* This thread's cell for where it is now. */
static struct exact_cell *quick_cell(struct exact_thread *exact) {
    /* Who calls Python's allocators is attached. */
    const void *state = exact->current_state();
    uint64_t frame = state != NULL ? sites_innermost(&exact->fields, state) : 0;
    if (frame == 0)
        return NULL;
    return exact_cell_of_kind(exact, frame,
                              layout_has(exact->fields.last) ? EXACT_FRAMES_OBJECTS : EXACT_FRAMES_LINKED);
}

bool exact_given(uint64_t address, size_t size_bytes) {
    struct exact_thread *exact = busy_thread.exact;
    if (!exact_is_quick(exact) || exact_is_paused(exact) || size_bytes >> ORPHAN_SITE_SHIFT != 0)
        return false;
    exact_begin_quick();
    struct exact_cell *cell = quick_cell(exact);
    bool is_put = cell != NULL && put(exact, address, &(struct block){site_of(cell), size_bytes});
    if (is_put) {
        touch(exact, cell);
        cell->alloc_bytes += size_bytes;
        cell->alloc_count++;
        exact->newest = address;
    }
    exact_end_quick();
    return is_put;
}

bool exact_back(uint64_t address) {
    struct exact_thread *exact = busy_thread.exact;
    struct exact_cell *cell = NULL;
    struct block block;
    if (!exact_is_quick(exact))
        return false;
    exact_begin_quick();
    blocks_entry *entry = entry_of(exact, address, false);
    uint32_t value = entry != NULL ? atomic_load_explicit(entry, memory_order_relaxed) : 0;
    if (value != 0 && (cell = known_cell(exact, value >> BLOCKS_SIZE_BITS)) != NULL && blocks_take(address, &block)) {
        touch(exact, cell);
        cell->gone_bytes += (int64_t)block.size_bytes;
        cell->gone_count++;
        cell->temporary_bytes += exact->newest == address ? block.size_bytes : 0;
    }
    exact_end_quick();
    return value == 0 || cell != NULL;
}

/* It belongs to whoever made it grow. */
static void count_resized(struct exact_thread *exact, const struct sampled *block, struct exact_cell *before,
                          struct exact_cell *cell, uint64_t size_bytes) {
    touch(exact, before);
    before->gone_bytes += (int64_t)block->size_bytes;
    before->gone_count++;
    touch(exact, cell);
    cell->gone_bytes -= (int64_t)size_bytes;
    cell->gone_count--;
    if (size_bytes > block->size_bytes) {
        cell->gone_bytes += (int64_t)(size_bytes - block->size_bytes);
        cell->alloc_bytes += size_bytes - block->size_bytes;
    }
}

bool exact_resized(const struct sampled *block, uint64_t address, size_t size_bytes) {
    struct exact_thread *exact = busy_thread.exact;
    if (!exact_is_quick(exact) || exact_is_paused(exact) || size_bytes >> ORPHAN_SITE_SHIFT != 0)
        return false;
    exact_begin_quick();
    struct exact_cell *before = known_cell(exact, (uint32_t)block->id);
    struct exact_cell *cell = size_bytes > block->size_bytes ? quick_cell(exact) : before;
    bool is_put = before != NULL && cell != NULL && put(exact, address, &(struct block){site_of(cell), size_bytes});
    if (is_put) {
        count_resized(exact, block, before, cell, size_bytes);
        exact->newest = size_bytes > block->size_bytes ? address : exact->newest;
    }
    exact_end_quick();
    return is_put;
}

/* --- The long way. --- */

void exact_give_back(uint64_t address, bool is_busy, bool is_final) {
    struct block block;
    struct wire_region *region = heap_region();
    if (!blocks_take(address, &block) || region == NULL || is_final)
        return;
    struct agent_thread *thread = threads_current();
    struct exact_thread *exact = thread != NULL && is_busy ? exact_of(thread) : NULL;
    struct exact_cell *cell = exact != NULL ? cell_of(exact, block.site) : NULL;
    if (cell == NULL) {
        leave_orphan(&block);
        return;
    }
    go(exact, cell, (int64_t)block.size_bytes, 1);
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
    struct exact_cell *cell = exact != NULL ? cell_of(exact, kept.site) : NULL;
    /* What it grows by comes to exact_note_given next. */
    if (size_bytes < kept.size_bytes && cell != NULL) {
        if (!is_final)
            go(exact, cell, (int64_t)kept.size_bytes - (int64_t)size_bytes, 0);
        kept.size_bytes = size_bytes;
    }
    if (!blocks_put(address, &kept))
        leave_orphan(&kept);
}

/* --- What strobe is told. --- */

static bool tell(struct agent_thread *thread, uint32_t site, const struct exact_cell *cell) {
    uint64_t position = wire_ring_position(&thread->ring);
    struct wire_counts *record = wire_ring_reserve(&thread->ring, &position, WIRE_COUNTS, sizeof *record);
    if (record == NULL)
        return false;
    record->time_ns = clock_now_ns();
    record->site = site != EXACT_SITE_UNKNOWN ? site : WIRE_SITE_UNKNOWN;
    record->slot = threads_index(thread);
    record->alloc_bytes = cell->alloc_bytes;
    record->alloc_count = cell->alloc_count;
    record->python_bytes = cell->alloc_bytes - cell->native_bytes;
    record->temporary_bytes = cell->temporary_bytes;
    record->live_bytes = (int64_t)cell->alloc_bytes - cell->gone_bytes;
    record->live_count = (int64_t)cell->alloc_count - (int64_t)cell->gone_count;
    record->before_bytes = cell->before_bytes;
    record->peak_id = exact_peak_id(cell->moment);
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
    while (exact->first_listed != EXACT_LAST && (everything || sites_have_room(&thread->ring))) {
        uint32_t site = exact->first_listed - 1;
        struct exact_cell *cell = &exact->pages[site / EXACT_CELLS_IN_PAGE][site % EXACT_CELLS_IN_PAGE];
        if (!tell(thread, site, cell))
            return;
        exact->first_listed = cell->next;
        /* Its site stays, as chains lead to it. */
        *cell = (struct exact_cell){.mark = cell->mark};
    }
}

void exact_begin(void) {
    static const _Atomic uint64_t always = 1;
    exact_none.finalizing = &always;
}

void exact_end_thread(void) {
    busy_thread.exact = &exact_none;
}

void exact_forget(void) {
    for (size_t i = 0; i < ORPHANS; i++)
        atomic_store(&orphans[i], 0);
    atomic_store(&orphan_count, 0);
    busy_thread.exact = &exact_none;
    sites_forget();
}
