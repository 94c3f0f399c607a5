/* Where a thread allocates, when every allocation is counted: the thread's stacks, each with a number of its own (a
 * site) that strobe is told once (struct wire_site).
 *
 * What the frames' own chain says is mixed into a number, by which the site is found again. Only a stack that is new
 * there is walked (agent/walk.h), with all that this takes to be certain. */
#ifndef STROBE_AGENT_SITES_H
#define STROBE_AGENT_SITES_H

#include "agent/blocks.h"
#include "agent/codes.h"
#include "agent/load.h"
#include "agent/threads.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SITES_CHAIN_BITS = 13,
    SITES_CHAINS = 1 << SITES_CHAIN_BITS,
    SITES_MAX = BLOCKS_MAX_SITES - 1, /* this one and 0 are none */
    SITES_MAX_HOPS = 1 << 16,
};

/* The keys of stacks are made of how many code objects have died and of their frames, one by one. No multiple of this
 * number by less than 2^31 comes nearer to one of 2^64 than 2^31 (the golden ratio is hard to approximate): where two
 * stacks differ in two frames, one behind the other, and there in the lowest 31 bits alone, they have different keys;
 * so they have where they differ in what has died and in the innermost frame. */
#define SITES_FACTOR UINT64_C(0x9e3779b97f4a7c15)
#define SITES_LAST_FACTOR UINT64_C(0xff51afd7ed558ccd) /* of the number of an instruction, beside an address */
static inline uint64_t sites_mix(uint64_t sum, uint64_t value) {
    return (sum ^ value) * SITES_FACTOR;
}

struct sites_entry {
    uint64_t key; /* 0: free */
    uint64_t site;
};
/* What is kept for a chain is the caller's to say. */
struct sites_chain {
    uint64_t key;
    void *what;
};

/* One slot's threads'. */
struct sites {
    struct sites_chain chains[SITES_CHAINS]; /* each place has the last one */
    struct sites_entry *stacks;              /* by what was walked: open addressing; mapped */
    size_t capacity, count;
    /* Those for which there was no room in the ring: struct untold and its frames, one behind the other; mapped. */
    uint8_t *untold;
    size_t untold_bytes, untold_capacity;
    size_t told_bytes; /* of these, what was told since */
};

/* The site of this thread's stack now; WIRE_SITE_UNKNOWN when it cannot be told, or strobe cannot. The thread is busy.
 */
uint32_t sites_find(struct sites *sites, struct agent_thread *thread);
/* What this thread's frames are, as one number; 0 when they cannot be followed just so. */
uint64_t sites_key(const struct agent_python *python);
/* How a thread's frames are followed, from its state on, which is attached. From 3.13 on a frame is where current_frame
 * says, in 3.11 and 3.12 where what cframe points to says; up to 3.10 it is an object. */
struct sites_fields {
    uint32_t current_frame, cframe_current; /* the latter OFFSET_NONE but in 3.11 and 3.12 */
    uint32_t previous;
    uint32_t instruction,
        last; /* up to 3.10 the code object and the number of the instruction; else last is OFFSET_NONE */
};
struct sites_fields sites_fields_of(const struct layout *layout);

static inline uint64_t sites_innermost(const struct sites_fields *fields, const void *state) {
    uint64_t frame = load_u64((const char *)state + fields->current_frame);
    if (__builtin_expect(layout_has(fields->cframe_current), 0))
        frame = frame != 0 ? load_u64((const char *)pointer_to(frame) + fields->cframe_current) : 0;
    return frame;
}

static inline uint64_t sites_caller(const struct sites_fields *fields, uint64_t frame) {
    return load_u64((const char *)pointer_to(frame) + fields->previous);
}

/* Where a frame is, up to 3.10. */
static inline uint64_t sites_place_in_code(const struct sites_fields *fields, uint64_t frame) {
    const char *bytes = pointer_to(frame);
    return load_u64(bytes + fields->instruction) ^
           (uint64_t)(load_u32(bytes + fields->last) + UINT64_C(2)) * SITES_LAST_FACTOR;
}

/* Where a frame is. It means the same as long as no code object has died. */
static inline uint64_t sites_place(const struct sites_fields *fields, uint64_t frame) {
    return __builtin_expect(layout_has(fields->last), 0)
               ? sites_place_in_code(fields, frame)
               : load_u64((const char *)pointer_to(frame) + fields->instruction);
}

static inline uint64_t sites_key_of_frames(const struct sites_fields *fields, uint64_t frame) {
    uint64_t sum = atomic_load_explicit(&codes_generation, memory_order_relaxed);
    for (uint32_t hops = SITES_MAX_HOPS; frame != 0 && hops > 0; hops--) {
        sum = sites_mix(sum, sites_place(fields, frame));
        frame = sites_caller(fields, frame);
    }
    return sum;
}
/* Where what belongs to the chain with this key is, if its key is there, or may be put. */
static inline struct sites_chain *sites_chain(struct sites *sites, uint64_t key) {
    enum { SHIFT = 64 - SITES_CHAIN_BITS - 4 };
    _Static_assert(sizeof(struct sites_chain) == 1 << 4, "they are found by its size");
    return (struct sites_chain *)(void *)((char *)sites->chains + (key >> SHIFT & ~UINT64_C(15)));
}
/* All zero is empty, but that a key of 0 is not found. */
static inline void sites_begin(struct sites *sites) {
    sites->chains[0].key = UINT64_MAX;
}
/* Tells of those that were not told, as far as there is room or, with `everything`, more than that; false when some are
 * left. Before anything else is told of them. The thread is
 * busy.
 */
bool sites_tell_rest(struct sites *sites, struct agent_thread *thread, bool everything);
/* Whether strobe has left room in the ring: half of it. */
bool sites_have_room(const struct wire_ring *ring);
/* In a child of fork: its sites begin anew. */
void sites_forget(void);

#endif
