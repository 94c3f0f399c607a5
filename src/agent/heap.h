/* What the program allocates: counted byte by byte, told by samples (agent/stride.h, struct wire_alloc), and summed up
 * in the region's footprint. Allocators of every kind (agent/heap_libc.c, agent/heap_python.c) tell it here.
 *
 * What is not sampled costs a subtraction in memory of the thread's own: no lock, no shared cache line, no system call.
 * Nothing here allocates. Where not said otherwise, all may be called at any moment, in signal handlers, too, and errno
 * is left alone. */
#ifndef STROBE_AGENT_HEAP_H
#define STROBE_AGENT_HEAP_H

#include "agent/sampled.h"
#include "wire/records.h"
#include "wire/region.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HEAP_EXACT_BYTES = 1 << 20,  /* what is at least as large is told always */
    HEAP_FLUSH_BYTES = 64 << 10, /* a thread may know of so much that the footprint lacks */
    /* Where all is counted: the most that is allocated in large blocks without telling. */
    HEAP_UNTOLD_BYTES = 256 << 10,
};

/* All zero when the thread is born, so that its first allocation is looked at. */
struct heap_thread {
    int64_t left;          /* bytes until an allocation is to be looked at, which it is when this is below 0 */
    int64_t delta;         /* bytes that the footprint does not have yet */
    int64_t rest;          /* of the gap to the byte that is struck, what is not in `left` */
    int64_t granted_bytes; /* all that `left` was ever raised by; the difference was allocated */
    uint64_t random;
    /* A Python allocator asks another one for the memory that it hands on. */
    uint32_t inside;
    uint32_t domain;      /* enum wire_domain, of what malloc is called for */
    void *nested;         /* what malloc returned last, inside */
    uint32_t resizes;     /* calls of realloc that have resized a block of malloc's */
    uint32_t arena_frees; /* arenas of pymalloc's that were given back */
    bool seeded;
};
extern __thread struct heap_thread heap_thread __attribute__((tls_model("initial-exec")));

/* False: it is known that memory is not looked at in this process. */
extern bool heap_on;
/* Every allocation is counted (agent/exact.h). Then `left` is below 0, and every address may be sampled. */
extern bool heap_is_exact;

/* A block that the program is about to be given, by now or before. */
struct heap_block {
    void *address;
    size_t size_bytes;
    size_t grown_bytes; /* what is new of these */
    uint64_t id;        /* when it is sampled already; else 0 */
};

/* `left` or `delta` has gone beyond its limit, and the block is the one with which it did so. */
void heap_look(const struct heap_block *block);
/* The parts of it. The footprint alone; whether an allocation of so many bytes is to be told, and with which weights;
 * telling it. */
void heap_flush(void);
struct heap_choice {
    uint64_t weight_bytes;
    uint64_t weight_count;
};
bool heap_choose(size_t grown_bytes, struct heap_choice *choice);
void heap_tell(const struct heap_block *block, const struct heap_choice *choice, uint32_t domain);

static inline bool heap_delta_is_large(void) {
    return (uint64_t)heap_thread.delta + HEAP_FLUSH_BYTES > (uint64_t)2 * HEAP_FLUSH_BYTES;
}

/* malloc has given out a block that takes `usable_bytes`. */
static inline void heap_note_given(void *address, size_t size_bytes, size_t usable_bytes) {
    heap_thread.delta += (int64_t)usable_bytes;
    heap_thread.left -= (int64_t)size_bytes;
    if (heap_thread.left < 0 || heap_delta_is_large())
        heap_look(&(struct heap_block){.address = address, .size_bytes = size_bytes, .grown_bytes = size_bytes});
}

/* A block may be sampled (sampled_may_hold) and is about to be given back. */
void heap_give_back(void *address);
/* It may be, and is about to be changed in size and perhaps place. False when it is not sampled. Else it is not known
 * by its address any more, until heap_keep. */
bool heap_take_out(void *address, struct sampled *block);
/* It is at `address` now and has another size, or not. */
void heap_keep(struct sampled *block, void *address, size_t size_bytes);

/* A thread that was busy (agent/busy.h) is not any more: what was left for later meanwhile is done. */
void heap_catch_up(void);

/* The region in which this thread may tell of memory now; NULL: not yet, not any more, or not in this process. */
struct wire_region *heap_region(void);

/* A decimal number; 0 when there is none. */
uint64_t heap_number_from_environment(const char *name, uint64_t highest);
/* Where every allocation is counted: a large block was, by other means than heap_look. */
void heap_note_counted(size_t size_bytes);
/* The same: tells what has come together, all of it or as much as there is room for. */
void heap_tell_counts(bool everything);

/* From the environment; once, before anything else. */
void heap_read_environment(void);
/* This process is no Python, or the agent is off. */
void heap_switch_off(void);
/* What was given out while nobody looked: the process turns out to be one to look at after all. Before heap_begin. */
void heap_take_over(int64_t bytes);
/* The region is this process's from here on; in a child of fork, once more. */
void heap_begin(struct wire_region *region, bool forked);
/* In a child of fork, before anything else. */
void heap_forget(void);
/* What was allocated before there was a region is told; in the process's first thread, which is sampled already. */
void heap_tell_early(void);
/* The calling thread is about to start another one, which has its slot: tells from where. */
void heap_tell_start(struct wire_slot *born);
/* The calling thread is not sampled any more. */
void heap_end_thread(void);

#endif
