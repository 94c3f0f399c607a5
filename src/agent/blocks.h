/* The blocks that live, all of them, when every allocation is counted: the site and the size of each, found by its
 * address. They stand outside of the blocks, in a copy of the address space that is a quarter as large and of which
 * there is what is used: a tree of tables, whose leaves have four bytes for every 16 bytes of memory.
 *
 *     address: 47 ... 36 | 35 ... 24 | 23 ... 4 | 3 ... 0
 *              top table | table     | leaf     | (bit 3: which of two trees; the other one is for blocks of 8 bytes)
 *
 * No lock: an address belongs to whoever has the block. An entry is set after its block was given out and taken before
 * it is given back. Async-signal-safe; changes errno. */
#ifndef STROBE_AGENT_BLOCKS_H
#define STROBE_AGENT_BLOCKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { BLOCKS_MAX_SITES = 1 << 22 };

struct block {
    uint32_t site; /* from 1 to BLOCKS_MAX_SITES - 1 */
    uint64_t size_bytes;
};

/* False when there is no memory to remember it. What was known of the address is forgotten. */
bool blocks_put(uint64_t address, const struct block *block);
/* False when it is not known; from here on it is not. */
bool blocks_take(uint64_t address, struct block *block);

/* The same by hand, for whoever looks at many blocks of one region: the entry of an address, whose neighbours in the
 * region are in its leaf; NULL as above. Entries of small blocks alone: site << BLOCKS_SIZE_BITS | size. */
typedef _Atomic uint32_t blocks_entry;
enum {
    BLOCKS_SIZE_BITS = 10,
    BLOCKS_SIZE_BEHIND = (1 << BLOCKS_SIZE_BITS) - 1, /* stands for all that is as large or larger */
    BLOCKS_GRANULE_BITS = 4,
    BLOCKS_GRANULE_BYTES = 1 << BLOCKS_GRANULE_BITS,
    BLOCKS_REGION_BYTES = 1 << 24,
};
blocks_entry *blocks_find(uint64_t address, bool make);

#endif
