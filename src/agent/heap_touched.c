#include "agent/heap_touched.h"

#include "agent/busy.h"
#include "agent/clock.h"
#include "agent/heap.h"
#include "agent/hot.h"

#include <errno.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/mman.h>

enum {
    MAX_RANGES = 64,
    PAGES_AT_ONCE = 16 << 10,
    SPINS = 100,
    LOOK_NS = 20000000,
    /* It is not looked at more often than that this part of the time is for it. */
    LOOK_SHARE = 50,
};

struct range {
    uintptr_t start, end;
    int64_t counted_bytes;
};
static struct {
    _Atomic bool locked;
    _Atomic uint32_t count;
    _Atomic uint64_t next_look_ns;
    struct range ranges[MAX_RANGES];
    unsigned char pages[PAGES_AT_ONCE];
} touched;

/* --- A thread that holds the lock is busy, so that nothing that interrupts it waits for itself. --- */

static bool try_lock(void) {
    if (!busy_enter())
        return false;
    if (!atomic_exchange_explicit(&touched.locked, true, memory_order_acquire))
        return true;
    busy_leave();
    return false;
}

static bool lock(void) {
    if (!busy_enter())
        return false;
    for (unsigned spins = 0; atomic_exchange_explicit(&touched.locked, true, memory_order_acquire); spins++)
        if (spins >= SPINS)
            sched_yield();
    return true;
}

static void unlock(void) {
    atomic_store_explicit(&touched.locked, false, memory_order_release);
    busy_leave();
    heap_catch_up();
}

void heap_touched_forget(void) {
    if (atomic_exchange(&touched.locked, false))
        atomic_store(&touched.count, 0);
}

/* --- Counting. --- */

static int64_t count_pages(uintptr_t start, uintptr_t end) {
    uintptr_t page_bytes = getauxval(AT_PAGESZ);
    int64_t count = 0;
    while (start < end) {
        uintptr_t left = (end - start + page_bytes - 1) / page_bytes;
        size_t pages = left < PAGES_AT_ONCE ? left : PAGES_AT_ONCE;
        // NOLINTNEXTLINE(performance-no-int-to-ptr)
        if (mincore((void *)start, pages * page_bytes, touched.pages) != 0)
            return count * (int64_t)page_bytes; /* it went unseen */
        for (size_t i = 0; i < pages; i++)
            count += touched.pages[i] & 1;
        start += pages * page_bytes;
    }
    return count * (int64_t)page_bytes;
}

static void recount(struct range *range) {
    int64_t bytes = count_pages(range->start, range->end);
    heap_thread.delta += bytes - range->counted_bytes;
    range->counted_bytes = bytes;
    if (heap_delta_is_large())
        heap_flush();
}

AGENT_HOT void heap_touched_look(bool at_once) {
    if (atomic_load_explicit(&touched.count, memory_order_relaxed) == 0)
        return;
    bool is_early = clock_now_ns() < atomic_load_explicit(&touched.next_look_ns, memory_order_relaxed);
    if ((is_early && !at_once) || heap_region() == NULL || !try_lock())
        return;
    uint64_t begin_cpu_ns = clock_cpu_ns();
    for (uint32_t i = 0; i < atomic_load(&touched.count); i++)
        recount(&touched.ranges[i]);
    uint64_t used_ns = clock_cpu_ns() - begin_cpu_ns;
    atomic_store(&touched.next_look_ns, clock_now_ns() + LOOK_NS + LOOK_SHARE * used_ns);
    unlock();
}

/* --- What there is. --- */

static void add(uintptr_t start, uintptr_t end, int64_t counted_bytes) {
    uint32_t count = atomic_load(&touched.count);
    if (start >= end)
        return;
    if (count == MAX_RANGES) {
        heap_thread.delta -= counted_bytes;
        return;
    }
    touched.ranges[count] = (struct range){start, end, counted_bytes};
    atomic_store(&touched.count, count + 1);
}

void heap_touched_map(const void *address, size_t size_bytes) {
    uintptr_t start = (uintptr_t)address;
    if (!lock())
        return;
    add(start, start + size_bytes, 0);
    unlock();
}

/* Counted before it goes, so that a peak is seen that it is part of. */
static void cut(uint32_t place, uintptr_t start, uintptr_t end) {
    struct range whole = touched.ranges[place];
    recount(&whole);
    uint32_t last = atomic_load(&touched.count) - 1;
    touched.ranges[place] = touched.ranges[last];
    atomic_store(&touched.count, last);
    int64_t low_bytes = start > whole.start ? count_pages(whole.start, start) : 0;
    int64_t high_bytes = end < whole.end ? count_pages(end, whole.end) : 0;
    heap_thread.delta -= whole.counted_bytes - low_bytes - high_bytes;
    add(whole.start, start, low_bytes);
    add(end, whole.end, high_bytes);
}

void heap_touched_unmap(const void *address, size_t size_bytes) {
    uintptr_t start = (uintptr_t)address, end;
    if (atomic_load_explicit(&touched.count, memory_order_relaxed) == 0 ||
        __builtin_add_overflow(start, size_bytes, &end) || !lock())
        return;
    /* From behind, as what is cut moves to the end. */
    for (uint32_t i = atomic_load(&touched.count); i-- > 0;)
        if (touched.ranges[i].start < end && touched.ranges[i].end > start)
            cut(i, start, end);
    if (heap_delta_is_large())
        heap_flush();
    unlock();
}

bool heap_touched_knows(const void *address) {
    bool is_known = false;
    if (atomic_load_explicit(&touched.count, memory_order_relaxed) == 0 || !lock())
        return false;
    for (uint32_t i = 0; i < atomic_load(&touched.count); i++)
        is_known |= (uintptr_t)address - touched.ranges[i].start < touched.ranges[i].end - touched.ranges[i].start;
    unlock();
    return is_known;
}
