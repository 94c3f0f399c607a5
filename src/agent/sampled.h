/* The sampled blocks that live: found by their address when they are given back.
 *
 * In front stands a filter that every free asks: a byte for each of 128 Ki classes of addresses that counts the sampled
 * blocks in it. Almost always it says that there is none. What is behind is locked; only sampled blocks get there.
 *
 * A thread may be interrupted while it holds a lock: then the same thread must not come here again before it is done
 * (agent/heap.c sees to that). No malloc; changes errno. */
#ifndef STROBE_AGENT_SAMPLED_H
#define STROBE_AGENT_SAMPLED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sampled {
    uint64_t address; /* not 0 */
    uint64_t id;
    uint64_t size_bytes;
};

enum { SAMPLED_FILTER_BITS = 17, SAMPLED_FILTER_BYTES = 1 << SAMPLED_FILTER_BITS };
extern _Atomic uint8_t sampled_filter[SAMPLED_FILTER_BYTES];

static inline size_t sampled_class(uint64_t address) {
    return (size_t)((address >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> (64 - SAMPLED_FILTER_BITS));
}

/* False: no sampled block begins at the address. The program must not be giving it back in another thread. */
static inline bool sampled_may_hold(uint64_t address) {
    return atomic_load_explicit(&sampled_filter[sampled_class(address)], memory_order_relaxed) != 0;
}

/* The same address can be added twice, when a block is given back, and given out to another thread, before it was
 * removed here; the first one is removed first. False when there is no memory. */
bool sampled_add(const struct sampled *block);
/* False when there is none. */
bool sampled_remove(uint64_t address, struct sampled *block);

/* Every address may hold one from here on, until all is forgotten. */
void sampled_hold_everything(void);

/* In a child of fork, whatever the parent's other threads were doing: all is empty and unlocked. */
void sampled_forget_all(void);

/* One of the tables behind the filter, for tests: open addressing, linear probing, no tombstones. */
struct sampled_table {
    struct sampled *entries; /* `capacity` of them, mapped; NULL: none yet */
    size_t capacity;         /* a power of two */
    size_t count;
};
bool sampled_table_add(struct sampled_table *table, const struct sampled *block);
bool sampled_table_remove(struct sampled_table *table, uint64_t address, struct sampled *block);
void sampled_table_release(struct sampled_table *table);
/* Where the search for an address begins in a table of that capacity. */
size_t sampled_table_home(uint64_t address, size_t capacity);

#endif
