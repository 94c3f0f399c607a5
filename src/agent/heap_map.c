/* mmap and mmap64 are two functions here, whatever the size of off_t. */
#undef _FILE_OFFSET_BITS
#include "agent/heap_map.h"

#include "agent/agent.h"
#include "agent/busy.h"
#include "agent/heap.h"
#include "agent/heap_touched.h"
#include "agent/load.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    FIRST_CAPACITY = 1 << 10,
    MAX_RANGES = 1 << 17, /* twice what the kernel allows by default (vm.max_map_count) */
    SPINS = 100,
    PAGE_BYTES = 4096, /* or a divisor of what it is */
};

/* Not every libc declares it. */
// NOLINTNEXTLINE(readability-redundant-declaration)
AGENT_EXPORT void *mmap64(void *address, size_t size_bytes, int protection, int flags, int file, off_t offset);

static struct {
    void *(*mmap)(void *, size_t, int, int, int, off_t);
    int (*munmap)(void *, size_t);
    void *(*mremap)(void *, size_t, size_t, int, ...);
    int (*mprotect)(void *, size_t, int);
} next;

/* Of a library. */
struct extent {
    uintptr_t start, end;
};
static struct extent own, allocators, interpreter;
static bool begun;

/* What is mapped and counted, in the order of the addresses. */
struct range {
    uintptr_t start, end;
    /* Where the mapping began that this is what is left of: the block's address. 0: address space that is only
     * reserved, of which what is opened later (mprotect) is memory from then on. */
    uintptr_t origin;
};
static struct {
    _Atomic bool locked;
    struct range *ranges;
    size_t count;
    size_t capacity;
} known;

/* --- What comes next. --- */

void heap_map_find_next(void) {
    *(void **)&next.mmap = dlsym(RTLD_NEXT, "mmap");
    *(void **)&next.munmap = dlsym(RTLD_NEXT, "munmap");
    *(void **)&next.mremap = dlsym(RTLD_NEXT, "mremap");
    *(void **)&next.mprotect = dlsym(RTLD_NEXT, "mprotect");
}

static void *next_mmap(void *address, size_t size_bytes, int protection, int flags, int file, off_t offset) {
    if (next.mmap != NULL)
        return next.mmap(address, size_bytes, protection, flags, file, offset);
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    return (void *)syscall(SYS_mmap, address, size_bytes, protection, flags, file, offset);
}

static int next_munmap(void *address, size_t size_bytes) {
    return next.munmap != NULL ? next.munmap(address, size_bytes) : (int)syscall(SYS_munmap, address, size_bytes);
}

static void *next_mremap(void *old, size_t old_bytes, size_t size_bytes, int flags, void *address) {
    if (next.mremap != NULL)
        return next.mremap(old, old_bytes, size_bytes, flags, address);
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    return (void *)syscall(SYS_mremap, old, old_bytes, size_bytes, flags, address);
}

static int next_mprotect(void *address, size_t size_bytes, int protection) {
    return next.mprotect != NULL ? next.mprotect(address, size_bytes, protection)
                                 : (int)syscall(SYS_mprotect, address, size_bytes, protection);
}

/* --- Who calls. --- */

struct search {
    uintptr_t address;
    struct extent found;
};

static int find_extent(struct dl_phdr_info *library, size_t size_bytes, void *argument) {
    (void)size_bytes;
    struct search *search = argument;
    struct extent extent = {UINTPTR_MAX, 0};
    for (size_t i = 0; i < library->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &library->dlpi_phdr[i];
        uintptr_t start = library->dlpi_addr + segment->p_vaddr;
        if (segment->p_type != PT_LOAD)
            continue;
        extent.start = start < extent.start ? start : extent.start;
        extent.end = start + segment->p_memsz > extent.end ? start + segment->p_memsz : extent.end;
    }
    if (search->address < extent.start || search->address >= extent.end)
        return 0;
    search->found = extent;
    return 1;
}

static struct extent extent_of(const void *address) {
    struct search search = {.address = (uintptr_t)address};
    dl_iterate_phdr(find_extent, &search);
    return search.found;
}

static bool is_within(const void *address, struct extent extent) {
    return (uintptr_t)address - extent.start < extent.end - extent.start;
}

/* What the allocator maps is in its blocks. A child that was made without libc's fork has the lock as it was. */
static bool counts(const void *caller) {
    return heap_on && begun && !is_within(caller, own) && !is_within(caller, allocators) && heap_region() != NULL;
}

void heap_map_begin(const void *allocator) {
    if (begun)
        return;
    own = extent_of((const void *)&known);
    allocators = extent_of(allocator);
    interpreter = extent_of(pointer_to(agent_python()->runtime));
    begun = true;
}

/* --- What is known. A thread that holds the lock is busy, so that nothing that interrupts it waits for itself. --- */

static bool lock(void) {
    if (!busy_enter())
        return false;
    for (unsigned spins = 0; atomic_exchange_explicit(&known.locked, true, memory_order_acquire); spins++)
        if (spins >= SPINS)
            sched_yield();
    return true;
}

static void unlock(void) {
    atomic_store_explicit(&known.locked, false, memory_order_release);
    busy_leave();
    heap_catch_up();
}

void heap_map_forget(void) {
    heap_touched_forget();
    /* Whoever held it may just have given the old table back. */
    if (atomic_exchange(&known.locked, false)) {
        known.ranges = NULL;
        known.count = known.capacity = 0;
    }
}

static bool make_room(void) {
    if (known.count < known.capacity)
        return true;
    size_t capacity = known.capacity == 0 ? FIRST_CAPACITY : 2 * known.capacity;
    if (capacity > MAX_RANGES)
        return false;
    struct range *ranges =
        next_mmap(NULL, capacity * sizeof *ranges, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ranges == MAP_FAILED)
        return false;
    if (known.count > 0) {
        memcpy(ranges, known.ranges, known.count * sizeof *ranges);
        next_munmap(known.ranges, known.capacity * sizeof *ranges);
    }
    known.ranges = ranges;
    known.capacity = capacity;
    return true;
}

/* The first one that ends above the address. */
static size_t find_above(uintptr_t address) {
    size_t low = 0, high = known.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (known.ranges[middle].end > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static bool insert(size_t place, struct range range) {
    if (!make_room())
        return false;
    memmove(&known.ranges[place + 1], &known.ranges[place], (known.count - place) * sizeof range);
    known.ranges[place] = range;
    known.count++;
    return true;
}

static void erase(size_t place) {
    known.count--;
    memmove(&known.ranges[place], &known.ranges[place + 1], (known.count - place) * sizeof *known.ranges);
}

/* Takes one piece out of what is known, the lowest that lies in [start, end). */
static bool cut_piece(uintptr_t start, uintptr_t end, struct range *piece) {
    size_t place = find_above(start);
    if (place == known.count || known.ranges[place].start >= end)
        return false;
    struct range whole = known.ranges[place];
    *piece = whole;
    if (start > whole.start)
        piece->start = start;
    if (end < whole.end)
        piece->end = end;
    if (piece->start == whole.start && piece->end == whole.end) {
        erase(place);
    } else if (piece->start == whole.start) {
        known.ranges[place].start = piece->end;
    } else {
        known.ranges[place].end = piece->start;
        if (piece->end < whole.end)
            (void)insert(place + 1, (struct range){piece->end, whole.end, whole.origin});
    }
    return true;
}

/* Makes memory of one piece that is reserved, the lowest that lies in [start, end). */
static bool open_piece(uintptr_t start, uintptr_t end, struct range *piece) {
    size_t place = find_above(start);
    while (place < known.count && known.ranges[place].start < end && known.ranges[place].origin != 0)
        place++;
    if (place == known.count || known.ranges[place].start >= end)
        return false;
    if (start < known.ranges[place].start)
        start = known.ranges[place].start;
    if (!cut_piece(start, end, piece))
        return false;
    piece->origin = piece->start;
    return insert(find_above(piece->start), *piece);
}

static bool is_left_of(uintptr_t origin) {
    for (size_t i = 0; i < known.count; i++)
        if (known.ranges[i].origin == origin)
            return true;
    return false;
}

/* --- What is told. --- */

static void flush_if_large(void) {
    if (heap_delta_is_large())
        heap_flush();
}

static void look(const struct heap_block *block) {
    if (heap_thread.inside > 0)
        return;
    heap_thread.left -= (int64_t)block->grown_bytes;
    if (heap_thread.left >= 0)
        return;
    uint32_t domain = heap_thread.domain;
    heap_thread.domain = WIRE_DOMAIN_MAP;
    heap_look(block);
    heap_thread.domain = domain;
}

/* Told first: if this makes a new peak, then the block is in it. */
static void note_memory(void *address, size_t size_bytes) {
    heap_thread.delta += (int64_t)size_bytes;
    look(&(struct heap_block){.address = address, .size_bytes = size_bytes, .grown_bytes = size_bytes});
    flush_if_large();
}

static bool know(const void *address, size_t size_bytes, uintptr_t origin) {
    uintptr_t start = (uintptr_t)address;
    if (!lock())
        return false;
    bool inserted = insert(find_above(start), (struct range){start, start + size_bytes, origin});
    unlock();
    return inserted;
}

static void note_mapped(void *address, size_t size_bytes) {
    size_bytes = (size_bytes + PAGE_BYTES - 1) & ~(size_t)(PAGE_BYTES - 1);
    if (!know(address, size_bytes, (uintptr_t)address))
        return;
    note_memory(address, size_bytes);
}

static void note_reserved(const void *address, size_t size_bytes) {
    (void)know(address, (size_bytes + PAGE_BYTES - 1) & ~(size_t)(PAGE_BYTES - 1), 0);
}

static void shrink_block(const struct range *piece, bool something_is_left) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    void *address = (void *)piece->origin;
    struct sampled block;
    if (!sampled_may_hold(piece->origin))
        return;
    if (!something_is_left) {
        heap_give_back(address);
        return;
    }
    size_t piece_bytes = piece->end - piece->start;
    if (heap_take_out(address, &block))
        heap_keep(&block, address, block.size_bytes > piece_bytes ? block.size_bytes - piece_bytes : 0);
}

/* The kernel is about to give the pages back, or has put others there. Each round takes one piece out of a table. */
static void note_unmapped(const void *address, size_t size_bytes) {
    uintptr_t start = (uintptr_t)address, end;
    if (__builtin_add_overflow(start, size_bytes, &end) || end > UINTPTR_MAX - PAGE_BYTES)
        return;
    end = (end + PAGE_BYTES - 1) & ~(uintptr_t)(PAGE_BYTES - 1);
    struct range piece;
    while (start < end && lock()) {
        bool found = cut_piece(start, end, &piece);
        bool something_is_left = found && sampled_may_hold(piece.origin) && is_left_of(piece.origin);
        unlock();
        if (!found)
            return;
        start = piece.end;
        if (piece.origin == 0)
            continue;
        heap_thread.delta -= (int64_t)(piece.end - piece.start);
        shrink_block(&piece, something_is_left);
        flush_if_large();
    }
}

/* What was reserved is memory now. Each round takes one piece out of a table. */
static void note_opened(const void *address, size_t size_bytes) {
    uintptr_t start = (uintptr_t)address, end;
    if (__builtin_add_overflow(start, size_bytes, &end) || end > UINTPTR_MAX - PAGE_BYTES)
        return;
    end = (end + PAGE_BYTES - 1) & ~(uintptr_t)(PAGE_BYTES - 1);
    struct range piece;
    while (start < end && lock()) {
        bool found = open_piece(start, end, &piece);
        unlock();
        if (!found)
            return;
        // NOLINTNEXTLINE(performance-no-int-to-ptr)
        note_memory((void *)piece.start, piece.end - piece.start);
        start = piece.end;
    }
}

/* --- What the program calls. --- */

/* Address space that is only reserved is not memory: what is put there later is, or what of it is opened, or where it
 * is open from the beginning (MAP_NORESERVE), what of it is touched. Of mimalloc's, which is the interpreter's, the
 * blocks are. */
static void note_made(const void *caller, void *mapped, size_t size_bytes, int protection, int flags) {
    if ((flags & MAP_ANONYMOUS) == 0)
        return;
    if ((flags & MAP_NORESERVE) == 0 && protection != PROT_NONE)
        note_mapped(mapped, size_bytes);
    else if ((flags & MAP_NORESERVE) == 0)
        note_reserved(mapped, size_bytes);
    else if (protection != PROT_NONE && heap_thread.inside == 0 && !is_within(caller, interpreter))
        heap_touched_map(mapped, size_bytes);
}

static inline __attribute__((always_inline)) void *map(const void *caller, void *address, size_t size_bytes,
                                                       int protection, int flags, int file, off_t offset) {
    void *mapped = next_mmap(address, size_bytes, protection, flags, file, offset);
    if (mapped == MAP_FAILED || !counts(caller))
        return mapped;
    int error = errno;
    /* What was there is not any more: by MAP_FIXED, or it went unseen (a handler's munmap, a system call). */
    heap_touched_unmap(mapped, size_bytes);
    note_unmapped(mapped, size_bytes);
    note_made(caller, mapped, size_bytes, protection, flags);
    errno = error;
    return mapped;
}

AGENT_EXPORT void *mmap(void *address, size_t size_bytes, int protection, int flags, int file, off_t offset) {
    return map(__builtin_return_address(0), address, size_bytes, protection, flags, file, offset);
}

AGENT_EXPORT void *mmap64(void *address, size_t size_bytes, int protection, int flags, int file, off_t offset) {
    return map(__builtin_return_address(0), address, size_bytes, protection, flags, file, offset);
}

/* Noted before, as another thread may be given the addresses as soon as they are left. When the kernel refuses, which
 * it does when a mapping had to be split and there may be no more, that is not undone. */
AGENT_EXPORT int munmap(void *address, size_t size_bytes) {
    if (counts(__builtin_return_address(0)) && (uintptr_t)address % PAGE_BYTES == 0) {
        int error = errno;
        heap_touched_unmap(address, size_bytes);
        note_unmapped(address, size_bytes);
        errno = error;
    }
    return next_munmap(address, size_bytes);
}

AGENT_EXPORT int mprotect(void *address, size_t size_bytes, int protection) {
    int result = next_mprotect(address, size_bytes, protection);
    if (result == 0 && protection != PROT_NONE && counts(__builtin_return_address(0))) {
        int error = errno;
        note_opened(address, size_bytes);
        errno = error;
    }
    return result;
}

/* Takes a mapping that is counted, whole, out of what is known. */
static bool take_whole(const void *address, size_t size_bytes, struct range *whole) {
    size_t bytes = (size_bytes + PAGE_BYTES - 1) & ~(size_t)(PAGE_BYTES - 1);
    if (!lock())
        return false;
    size_t place = find_above((uintptr_t)address);
    bool found = place < known.count && known.ranges[place].origin != 0 &&
                 known.ranges[place].start == (uintptr_t)address &&
                 known.ranges[place].end - known.ranges[place].start == bytes;
    if (found) {
        *whole = known.ranges[place];
        erase(place);
    }
    unlock();
    return found;
}

static void note_moved(const struct range *old, void *moved, size_t size_bytes, struct sampled *sampled) {
    size_t old_bytes = old->end - old->start;
    size_bytes = (size_bytes + PAGE_BYTES - 1) & ~(size_t)(PAGE_BYTES - 1);
    struct heap_block block = {.address = moved, .size_bytes = size_bytes};
    if (size_bytes > old_bytes)
        block.grown_bytes = size_bytes - old_bytes;
    if (sampled != NULL) {
        block.id = sampled->id;
        heap_keep(sampled, moved, size_bytes);
    }
    bool is_known = know(moved, size_bytes, (uintptr_t)moved);
    heap_thread.delta += (int64_t)(is_known ? size_bytes : 0) - (int64_t)old_bytes;
    if (is_known && block.grown_bytes > 0)
        look(&block);
    flush_if_large();
}

static void *remap_touched(void *old, size_t old_bytes, size_t size_bytes, int flags, void *address) {
    bool is_one = heap_touched_knows(old);
    heap_touched_unmap(old, old_bytes);
    void *moved = next_mremap(old, old_bytes, size_bytes, flags, address);
    int error = errno;
    if (is_one)
        heap_touched_map(moved != MAP_FAILED ? moved : old, moved != MAP_FAILED ? size_bytes : old_bytes);
    errno = error;
    return moved;
}

static void *remap(void *old, size_t old_bytes, size_t size_bytes, int flags, void *address) {
    struct range whole;
    struct sampled sampled;
    if (!take_whole(old, old_bytes, &whole))
        return remap_touched(old, old_bytes, size_bytes, flags, address);
    bool is_sampled = whole.origin == whole.start && sampled_may_hold(whole.origin) && heap_take_out(old, &sampled);
    void *moved = next_mremap(old, old_bytes, size_bytes, flags, address);
    int error = errno;
    if (moved != MAP_FAILED)
        note_unmapped(moved, size_bytes);
    note_moved(&whole, moved != MAP_FAILED ? moved : old, moved != MAP_FAILED ? size_bytes : old_bytes,
               is_sampled ? &sampled : NULL);
    errno = error;
    return moved;
}

AGENT_EXPORT void *mremap(void *old, size_t old_bytes, size_t size_bytes, int flags, ...) {
    va_list more;
    va_start(more, flags);
    void *address = (flags & MREMAP_FIXED) != 0 ? va_arg(more, void *) : NULL;
    va_end(more);
    /* Nothing goes away when the size is 0 (a second mapping of shared memory) or the flag says so. */
    bool keeps_old = old_bytes == 0 || (flags & ~(MREMAP_MAYMOVE | MREMAP_FIXED)) != 0;
    if (!counts(__builtin_return_address(0)) || keeps_old)
        return next_mremap(old, old_bytes, size_bytes, flags, address);
    return remap(old, old_bytes, size_bytes, flags, address);
}
