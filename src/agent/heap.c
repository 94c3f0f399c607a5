#include "agent/heap.h"

#include "agent/agent.h"
#include "agent/busy.h"
#include "agent/clock.h"
#include "agent/exact.h"
#include "agent/heap_early.h"
#include "agent/hot.h"
#include "agent/load.h"
#include "agent/stride.h"
#include "agent/threads.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    OWNER_PAGE_BYTES = 4096, /* or less than a page: all of it is wiped */
    PENDING = 32,
    UNDELIVERED = 2048,
    MAX_THINNING = 12,
    RETRY_BYTES = 64 << 20, /* a thread that has no ring asks again after so much */
};
static const int64_t NEVER = INT64_MAX / 4;

__thread struct heap_thread heap_thread;
bool heap_on = true;
bool heap_is_exact;

static struct {
    uint64_t stride_bytes;
    uint64_t seed; /* 0: none was given */
    bool begun;    /* a region was there, if it is not now */
    _Atomic(struct wire_region *) region;
    _Atomic uint64_t last_id;
    _Atomic uint64_t threads;
    int64_t inherited_bytes; /* of the parent's footprint, in a child of fork */
    /* True, in a page that the kernel wipes in every child that is not in the same memory, by whatever call. */
    _Atomic bool *is_own;
    /* Blocks that are given back, which could not be told: the ring was full, or the thread has none. 0: free. */
    _Atomic uint64_t undelivered[UNDELIVERED];
    _Atomic uint32_t undelivered_count;
} heap;

/* Given back by what interrupted this thread while it was busy. */
struct pending {
    uint64_t address;
    uint64_t time_ns;
};
static __thread struct pending pending[PENDING];
static __thread _Atomic uint32_t pending_count;

uint64_t heap_number_from_environment(const char *name, uint64_t highest) {
    const char *text = getenv(name);
    uint64_t number = 0;
    for (; text != NULL && *text >= '0' && *text <= '9' && number <= highest / 10; text++)
        number = number * 10 + (uint64_t)(*text - '0');
    return number > highest ? highest : number;
}

void heap_read_environment(void) {
    heap.stride_bytes = heap_number_from_environment(WIRE_ENVIRONMENT_MEMORY, STRIDE_MAX_BYTES);
    heap.seed = heap_number_from_environment(WIRE_ENVIRONMENT_MEMORY_SEED, UINT64_MAX);
    heap_is_exact = heap.stride_bytes == 1;
    exact_begin();
    if (heap.stride_bytes == 0)
        heap_switch_off();
}

void heap_switch_off(void) {
    heap_on = false;
    atomic_store(&heap.region, NULL);
}

void heap_take_over(int64_t bytes) {
    heap_thread.delta = bytes;
}

static bool make_owner_page(void) {
    if (heap.is_own == NULL) {
        void *page = mmap(NULL, OWNER_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED || madvise(page, OWNER_PAGE_BYTES, MADV_WIPEONFORK) != 0)
            return false;
        heap.is_own = page;
    }
    atomic_store(heap.is_own, true);
    return true;
}

void heap_begin(struct wire_region *region, bool forked) {
    if (heap.stride_bytes == 0 || !make_owner_page()) {
        heap_switch_off();
        return;
    }
    region->memory_stride_bytes = heap.stride_bytes;
    if (forked) {
        region->inherited_bytes = heap.inherited_bytes;
        atomic_store(&region->footprint_bytes, heap.inherited_bytes);
    }
    if (heap_is_exact)
        sampled_hold_everything();
    atomic_store(&region->peak_id, 1);
    heap_on = heap.begun = true;
    atomic_store(&heap.region, region);
}

/* NULL: not yet, not any more, or not in this process. */
static struct wire_region *own_region(void) {
    struct wire_region *region = atomic_load_explicit(&heap.region, memory_order_acquire);
    if (region != NULL && atomic_load_explicit(heap.is_own, memory_order_relaxed))
        return region;
    if (region != NULL)
        heap_switch_off();
    return NULL;
}

struct wire_region *heap_region(void) {
    return own_region();
}

void heap_forget(void) {
    struct wire_region *parents = atomic_exchange(&heap.region, NULL);
    if (parents != NULL)
        heap.inherited_bytes = atomic_load(&parents->footprint_bytes) + heap_thread.delta;
    heap_thread = (struct heap_thread){.domain = WIRE_DOMAIN_MALLOC};
    atomic_store(&pending_count, 0);
    for (size_t i = 0; i < UNDELIVERED; i++)
        atomic_store(&heap.undelivered[i], 0);
    atomic_store(&heap.undelivered_count, 0);
    sampled_forget_all();
    exact_forget();
}

static void note_peak(struct wire_region *region, uint64_t footprint_bytes) {
    uint64_t peak = atomic_load_explicit(&region->peak_bytes, memory_order_relaxed);
    while (footprint_bytes > peak)
        if (atomic_compare_exchange_weak(&region->peak_bytes, &peak, footprint_bytes)) {
            atomic_store_explicit(&region->peak_ns, clock_now_ns(), memory_order_relaxed);
            atomic_fetch_add(&region->peak_id, 1);
            return;
        }
}

void heap_flush(void) {
    struct wire_region *region = own_region();
    if (region == NULL)
        return;
    int64_t delta = heap_thread.delta;
    heap_thread.delta = 0;
    int64_t footprint = atomic_fetch_add(&region->footprint_bytes, delta) + delta;
    if (delta > 0 && footprint > 0)
        note_peak(region, (uint64_t)footprint);
    if (heap_is_exact)
        heap_tell_counts(false);
}

AGENT_HOT void heap_tell_counts(bool everything) {
    int error = errno;
    struct wire_region *region = heap_is_exact ? own_region() : NULL;
    if (region != NULL && busy_enter()) {
        exact_flush(region, everything);
        busy_leave();
    }
    errno = error;
}

static uint64_t footprint_bytes(const struct wire_region *region) {
    int64_t bytes = atomic_load_explicit(&region->footprint_bytes, memory_order_relaxed) + heap_thread.delta;
    return bytes > 0 ? (uint64_t)bytes : 0;
}

/* Flags for a record. _PyRuntimeState's finalizing is set when all that the program itself does is done, and before its
 * modules are taken apart (Py_FinalizeEx, Python/pylifecycle.c). */
static uint16_t moment(void) {
    const struct agent_python *python = agent_python();
    layout_offset finalizing = python->layout.runtime.finalizing;
    if (python->runtime == 0 || finalizing == OFFSET_NONE)
        return 0;
    const _Atomic(uint64_t) *thread = pointer_to(python->runtime + finalizing);
    return atomic_load_explicit(thread, memory_order_relaxed) != 0 ? WIRE_MEMORY_FINALIZING : 0;
}

static uint64_t allocated_bytes(void) {
    return (uint64_t)(heap_thread.granted_bytes - heap_thread.left);
}

/* The next look is when so many more bytes are allocated, or something large. */
static void grant(int64_t gap_bytes) {
    struct heap_thread *thread = &heap_thread;
    int64_t left = gap_bytes < HEAP_EXACT_BYTES ? gap_bytes : HEAP_EXACT_BYTES - 1;
    thread->granted_bytes += left - thread->left;
    thread->left = left;
    thread->rest = gap_bytes - left;
}

static int64_t draw_gap(void) {
    return (int64_t)stride_draw_gap(&heap_thread.random, heap.stride_bytes);
}

/* The first gap begins where the first allocation does that is looked at. */
static void begin_thread(size_t grown_bytes) {
    struct heap_thread *thread = &heap_thread;
    thread->random = heap.seed != 0 ? heap.seed : clock_now_ns();
    thread->random += atomic_fetch_add(&heap.threads, 1) << 32;
    thread->seeded = true;
    thread->rest = draw_gap() - (int64_t)grown_bytes - thread->left;
}

/* How often the number of records is to be halved, by the room that is left in the thread's ring: once when three
 * quarters are full. When strobe does not get to run, this is what loses none: each further halving of the room takes
 * as long as the one before. Which allocations are left out is a matter of chance, and the others stand for them, so
 * that no line gains by it. */
static unsigned thinning(const struct agent_thread *thread) {
    unsigned halvings = 0;
    uint64_t room = thread != NULL ? wire_ring_room(&thread->ring) : WIRE_RING_BYTES;
    while (halvings < MAX_THINNING && room < (uint64_t)WIRE_RING_BYTES >> (halvings + 2))
        halvings++;
    return halvings;
}

static bool is_kept(struct heap_choice *choice) {
    unsigned halvings = thinning(threads_current());
    choice->weight_bytes <<= halvings;
    choice->weight_count <<= halvings;
    return halvings == 0 || (stride_random(&heap_thread.random) & ((UINT64_C(1) << halvings) - 1)) == 0;
}

/* What is told always is sampled, too, when there is very little room: as by so much longer a stride. */
static bool is_large_kept(size_t grown_bytes, struct heap_choice *choice) {
    enum { SPARED_HALVINGS = 2 };
    unsigned halvings = thinning(threads_current());
    if (halvings <= SPARED_HALVINGS)
        return true;
    uint64_t stride_bytes = heap.stride_bytes << halvings;
    struct stride_weight weight =
        stride_weigh(grown_bytes, stride_bytes < STRIDE_MAX_BYTES ? stride_bytes : STRIDE_MAX_BYTES);
    *choice = (struct heap_choice){.weight_bytes = weight.bytes, .weight_count = weight.count};
    return stride_random(&heap_thread.random) / 2 < stride_chance(grown_bytes, &weight);
}

bool heap_choose(size_t grown_bytes, struct heap_choice *choice) {
    struct heap_thread *thread = &heap_thread;
    struct wire_region *region = own_region();
    if (region == NULL || thread->inside > 0 || grown_bytes == 0)
        return false;
    if (!thread->seeded)
        begin_thread(grown_bytes);
    bool paused = atomic_load_explicit(&region->control, memory_order_relaxed) == WIRE_CONTROL_PAUSE;
    if (grown_bytes >= HEAP_EXACT_BYTES) {
        *choice = (struct heap_choice){.weight_bytes = grown_bytes, .weight_count = STRIDE_COUNT_UNIT};
        grant(thread->left + thread->rest + (int64_t)grown_bytes);
        return !paused && is_large_kept(grown_bytes, choice);
    }
    int64_t gap = thread->left + thread->rest;
    bool struck = gap < 0;
    grant(struck ? draw_gap() : gap);
    if (!struck || paused)
        return false;
    struct stride_weight weight = stride_weigh(grown_bytes, heap.stride_bytes);
    *choice = (struct heap_choice){.weight_bytes = weight.bytes, .weight_count = weight.count};
    return is_kept(choice);
}

static void count_lost(struct wire_region *region) {
    atomic_fetch_add_explicit(&region->lost_memory_records, 1, memory_order_relaxed);
}

/* What it stands for is known, if not where it belongs. */
static void count_lost_allocation(struct wire_region *region, const struct heap_choice *choice) {
    count_lost(region);
    atomic_fetch_add_explicit(&region->lost_memory_bytes, choice->weight_bytes, memory_order_relaxed);
}

static void *reserve(struct agent_thread *thread, uint64_t *position, enum wire_type type, size_t size_bytes) {
    *position = wire_ring_position(&thread->ring);
    return wire_ring_reserve(&thread->ring, position, type, size_bytes);
}

static bool write_allocation(struct wire_region *region, struct agent_thread *thread, const struct wire_alloc *told,
                             struct walk_stack *stack) {
    uint32_t new_frames = stack->count - stack->kept;
    uint64_t position;
    struct wire_alloc *record =
        reserve(thread, &position, WIRE_ALLOC, sizeof *record + new_frames * sizeof *stack->frames);
    if (record == NULL)
        return false;
    uint32_t size_bytes = record->record.size_bytes;
    *record = *told;
    record->record = (struct wire_record){.size_bytes = size_bytes, .type = WIRE_ALLOC, .flags = stack->flags};
    record->time_ns = clock_now_ns();
    record->record.flags |= moment();
    record->footprint_bytes = footprint_bytes(region);
    record->allocated_bytes = allocated_bytes();
    record->kept = stack->kept;
    record->frame_count = new_frames;
    memcpy(record + 1, stack->frames, new_frames * sizeof *stack->frames);
    wire_ring_commit(&thread->ring, position);
    walk_accept(&thread->walk, stack);
    return true;
}

static bool write_free(struct wire_region *region, struct agent_thread *thread, uint64_t id, uint64_t time_ns) {
    uint64_t position;
    struct wire_free *record = reserve(thread, &position, WIRE_FREE, sizeof *record);
    if (record == NULL)
        return false;
    record->record.flags = moment();
    record->time_ns = time_ns;
    record->id = id;
    record->footprint_bytes = footprint_bytes(region);
    record->allocated_bytes = allocated_bytes();
    wire_ring_commit(&thread->ring, position);
    return true;
}

/* For whichever thread can write next. */
static void leave_undelivered(struct wire_region *region, uint64_t id) {
    for (size_t i = 0; i < UNDELIVERED; i++) {
        uint64_t none = 0;
        if (atomic_compare_exchange_strong(&heap.undelivered[i], &none, id)) {
            atomic_fetch_add(&heap.undelivered_count, 1);
            return;
        }
    }
    count_lost(region);
}

static void tell_free(struct wire_region *region, uint64_t id, uint64_t time_ns) {
    struct agent_thread *thread = threads_current();
    if (thread == NULL || !write_free(region, thread, id, time_ns))
        leave_undelivered(region, id);
}

static void deliver(struct wire_region *region, struct agent_thread *thread) {
    for (size_t i = 0; i < UNDELIVERED && atomic_load(&heap.undelivered_count) > 0; i++) {
        uint64_t id = atomic_exchange(&heap.undelivered[i], 0);
        if (id == 0)
            continue;
        atomic_fetch_sub(&heap.undelivered_count, 1);
        if (!write_free(region, thread, id, clock_now_ns())) {
            leave_undelivered(region, id);
            return;
        }
    }
}

static void give_back(struct wire_region *region, uint64_t address, uint64_t time_ns) {
    struct sampled block;
    if (sampled_remove(address, &block))
        tell_free(region, block.id, time_ns);
}

/* A handler may add one at any moment; it is done with it before this goes on. */
static bool take_pending(struct pending *freed) {
    uint32_t count = atomic_load_explicit(&pending_count, memory_order_relaxed);
    do {
        if (count == 0)
            return false;
        *freed = pending[count - 1];
    } while (!atomic_compare_exchange_weak(&pending_count, &count, count - 1));
    return true;
}

/* What came up meanwhile, and from others. */
static void finish(struct wire_region *region) {
    do {
        struct pending freed;
        while (take_pending(&freed))
            give_back(region, freed.address, freed.time_ns);
        struct agent_thread *thread = threads_current();
        if (thread != NULL && atomic_load_explicit(&heap.undelivered_count, memory_order_relaxed) > 0)
            deliver(region, thread);
        busy_leave();
    } while (atomic_load_explicit(&pending_count, memory_order_relaxed) > 0 && busy_enter());
}

AGENT_HOT void heap_catch_up(void) {
    struct wire_region *region = atomic_load_explicit(&pending_count, memory_order_relaxed) > 0 ? own_region() : NULL;
    if (region != NULL && busy_enter())
        finish(region);
}

static void tell(struct wire_region *region, const struct heap_block *block, const struct heap_choice *choice,
                 uint32_t domain) {
    struct agent_thread *thread = threads_current();
    if (thread == NULL)
        thread = threads_adopt();
    if (thread == NULL) {
        count_lost_allocation(region, choice);
        heap_thread.rest += RETRY_BYTES;
        return;
    }
    struct sampled entry = {(uint64_t)(uintptr_t)block->address, block->id, block->size_bytes};
    if (block->id == 0) {
        entry.id = atomic_fetch_add_explicit(&heap.last_id, 1, memory_order_relaxed) + 1;
        if (!sampled_add(&entry)) {
            count_lost_allocation(region, choice);
            return;
        }
    }
    struct wire_alloc told = {
        .id = entry.id,
        .address = entry.address,
        .size_bytes = block->size_bytes,
        .grown_bytes = block->grown_bytes,
        .weight_bytes = choice->weight_bytes,
        .weight_count = block->grown_bytes == block->size_bytes ? choice->weight_count : 0,
        .domain = domain,
    };
    struct walk_stack stack;
    /* Not interrupted, but called from within the interpreter: what its registers hold has nothing to say. */
    const struct walk_registers registers = {.stack_pointer = (uint64_t)(uintptr_t)__builtin_frame_address(0)};
    walk_frames(&thread->walk, &registers, &stack);
    if (walk_define_codes(&thread->walk, &stack, &thread->ring) && write_allocation(region, thread, &told, &stack))
        return;
    count_lost_allocation(region, choice);
    if (block->id == 0)
        (void)sampled_remove(entry.address, &entry);
}

void heap_tell(const struct heap_block *block, const struct heap_choice *choice, uint32_t domain) {
    int error = errno;
    struct wire_region *region = own_region();
    if (region != NULL && busy_enter()) {
        tell(region, block, choice, domain);
        finish(region);
    } else if (region != NULL) {
        count_lost_allocation(region, choice);
    }
    errno = error;
}

static bool write_start(struct agent_thread *thread, uint64_t id, const struct walk_stack *stack) {
    uint32_t new_frames = stack->count - stack->kept;
    uint64_t position;
    struct wire_start *record =
        reserve(thread, &position, WIRE_START, sizeof *record + new_frames * sizeof *stack->frames);
    if (record == NULL)
        return false;
    record->record.flags = stack->flags;
    record->time_ns = clock_now_ns();
    record->id = id;
    record->kept = stack->kept;
    record->frame_count = new_frames;
    memcpy(record + 1, stack->frames, new_frames * sizeof *stack->frames);
    wire_ring_commit(&thread->ring, position);
    walk_accept(&thread->walk, stack);
    return true;
}

/* A thread that runs no Python code hands on what is said of itself. */
static void tell_start(struct wire_region *region, struct agent_thread *thread, struct wire_slot *born) {
    struct walk_stack stack;
    const struct walk_registers registers = {.stack_pointer = (uint64_t)(uintptr_t)__builtin_frame_address(0)};
    walk_frames(&thread->walk, &registers, &stack);
    born->starter_id = thread->ring.slot->starter_id;
    born->starter = thread->ring.slot->starter;
    if (stack.count == 0 || !walk_define_codes(&thread->walk, &stack, &thread->ring))
        return;
    uint64_t id = atomic_fetch_add_explicit(&heap.last_id, 1, memory_order_relaxed) + 1;
    if (!write_start(thread, id, &stack))
        return;
    born->starter_id = id;
    born->starter = (uint32_t)(thread->ring.slot - wire_region_slot(region, 0));
}

void heap_tell_start(struct wire_slot *born) {
    int error = errno;
    struct wire_region *region = own_region();
    struct agent_thread *thread = threads_current();
    if (region != NULL && thread != NULL && busy_enter()) {
        tell_start(region, thread, born);
        finish(region);
    }
    errno = error;
}

static void tell_counts_if_many(void) {
    if (heap_thread.left >= -HEAP_UNTOLD_BYTES)
        return;
    heap_thread.left = -1;
    heap_tell_counts(false);
}

void heap_note_counted(size_t size_bytes) {
    heap_thread.left -= (int64_t)size_bytes;
    tell_counts_if_many();
    if (heap_delta_is_large())
        heap_flush();
}

static void count_exactly(const struct heap_block *block) {
    struct wire_region *region = own_region();
    if (region == NULL || block->grown_bytes == 0 ||
        atomic_load_explicit(&region->control, memory_order_relaxed) == WIRE_CONTROL_PAUSE)
        return;
    if (busy_enter()) {
        exact_note_given(region, block, heap_thread.domain, moment() != 0);
        finish(region);
    } else {
        count_lost(region);
    }
    tell_counts_if_many();
}

/* Their weight is what they are, whatever their size: which of them are told is not a matter of chance. */
void heap_tell_early(void) {
    struct heap_block block = {0};
    for (; heap_on && (block.size_bytes = heap_early_take(&block.address)) > 0;) {
        const struct heap_choice choice = {.weight_bytes = block.size_bytes, .weight_count = STRIDE_COUNT_UNIT};
        block.grown_bytes = block.size_bytes;
        if (heap_is_exact)
            count_exactly(&block);
        else
            heap_tell(&block, &choice, WIRE_DOMAIN_MALLOC);
    }
}

static void give_back_exactly(struct wire_region *region, uint64_t address) {
    bool is_busy = busy_enter();
    exact_give_back(address, is_busy, moment() != 0);
    if (is_busy)
        finish(region);
}

static void keep_exactly(struct wire_region *region, const struct sampled *block, uint64_t address, size_t size_bytes) {
    bool is_busy = busy_enter();
    exact_keep(block, address, size_bytes, is_busy, moment() != 0);
    if (is_busy)
        finish(region);
}

void heap_look(const struct heap_block *block) {
    int error = errno;
    struct heap_choice choice;
    if (heap_thread.inside > 0)
        heap_thread.nested = block->address;
    else if (!heap.begun)
        heap_early_add(block->address, block->grown_bytes);
    else if (heap_is_exact)
        count_exactly(block);
    else if (heap_thread.left < 0 && heap_choose(block->grown_bytes, &choice))
        heap_tell(block, &choice, heap_thread.domain);
    /* Told first: if this makes a new peak, then the allocation is in it. What is inside is told outside. */
    if (heap_delta_is_large() && !(heap_is_exact && heap_thread.inside > 0))
        heap_flush();
    errno = error;
}

static void postpone(struct wire_region *region, uint64_t address) {
    uint32_t place = atomic_load_explicit(&pending_count, memory_order_relaxed);
    do {
        if (place == PENDING) {
            count_lost(region);
            return;
        }
    } while (!atomic_compare_exchange_weak(&pending_count, &place, place + 1));
    pending[place] = (struct pending){address, clock_now_ns()};
}

void heap_give_back(void *address) {
    int error = errno;
    uint64_t number = (uint64_t)(uintptr_t)address;
    if (heap_is_exact && exact_back(number))
        return;
    struct wire_region *region = own_region();
    if (region != NULL && heap_is_exact) {
        give_back_exactly(region, number);
    } else if (region != NULL && busy_enter()) {
        give_back(region, number, clock_now_ns());
        finish(region);
    } else if (region != NULL) {
        postpone(region, number);
    } else if (!heap.begun) {
        heap_early_remove(address);
    }
    errno = error;
}

bool heap_take_out(void *address, struct sampled *block) {
    int error = errno;
    struct wire_region *region = own_region();
    bool taken = false;
    if (region != NULL && heap_is_exact) {
        taken = exact_take_out((uint64_t)(uintptr_t)address, block);
    } else if (region != NULL && busy_enter()) {
        taken = sampled_remove((uint64_t)(uintptr_t)address, block);
        finish(region);
    } else if (region != NULL) {
        postpone(region, (uint64_t)(uintptr_t)address);
    } else if (!heap.begun) {
        heap_early_remove(address);
    }
    errno = error;
    return taken;
}

static void tell_size(struct wire_region *region, const struct sampled *block) {
    struct agent_thread *thread = threads_current();
    uint64_t position;
    struct wire_resize *record = thread == NULL ? NULL : reserve(thread, &position, WIRE_RESIZE, sizeof *record);
    if (record == NULL) {
        count_lost(region);
        return;
    }
    record->record.flags = moment();
    record->time_ns = clock_now_ns();
    record->id = block->id;
    record->size_bytes = block->size_bytes;
    record->footprint_bytes = footprint_bytes(region);
    wire_ring_commit(&thread->ring, position);
}

void heap_keep(struct sampled *block, void *address, size_t size_bytes) {
    int error = errno;
    struct wire_region *region = own_region();
    if (heap_is_exact) {
        if (region != NULL)
            keep_exactly(region, block, (uint64_t)(uintptr_t)address, size_bytes);
        errno = error;
        return;
    }
    bool shrunk = size_bytes < block->size_bytes;
    block->address = (uint64_t)(uintptr_t)address;
    block->size_bytes = size_bytes;
    if (region != NULL && busy_enter()) {
        if (!sampled_add(block))
            tell_free(region, block->id, clock_now_ns());
        else if (shrunk)
            tell_size(region, block);
        finish(region);
    } else if (region != NULL) {
        leave_undelivered(region, block->id);
    }
    errno = error;
}

void heap_end_thread(void) {
    heap_flush();
    heap_tell_counts(true);
    exact_end_thread();
    grant(NEVER);
}
