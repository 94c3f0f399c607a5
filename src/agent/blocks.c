#include "agent/blocks.h"

#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>

enum {
    TOP_SHIFT = 36,
    TABLE_SHIFT = 24,
    LEAF_SHIFT = 4,
    ADDRESS_BITS = 48,
    TABLE_ENTRIES = 1 << (TOP_SHIFT - TABLE_SHIFT), /* of the top tables, too */
    LEAF_ENTRIES = 1 << (TABLE_SHIFT - LEAF_SHIFT),
    TREES = 2,
};
_Static_assert(1 << LEAF_SHIFT == BLOCKS_GRANULE_BYTES && 1 << TABLE_SHIFT == BLOCKS_REGION_BYTES, "as it is told");
/* A larger block has two entries more, where no other block can begin. */
_Static_assert(BLOCKS_SIZE_BEHIND >= 3 * BLOCKS_GRANULE_BYTES, "what is large has room for the entries of its size");
_Static_assert((uint64_t)BLOCKS_MAX_SITES << BLOCKS_SIZE_BITS == UINT64_C(1) << 32, "an entry holds them");

struct table {
    _Atomic(blocks_entry *) leaves[TABLE_ENTRIES];
};
static _Atomic(struct table *) tops[TREES][TABLE_ENTRIES];

/* Zero. Whoever is first has made it; a leaf is empty in a child of fork, which has no blocks of its own yet. */
static void *map_zeros(size_t size_bytes, bool wipe) {
    void *zeros = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (zeros == MAP_FAILED)
        return NULL;
    if (!wipe || madvise(zeros, size_bytes, MADV_WIPEONFORK) == 0)
        return zeros;
    munmap(zeros, size_bytes);
    return NULL;
}

static struct table *make_table(_Atomic(struct table *) *place) {
    struct table *none = NULL, *made = map_zeros(sizeof *made, false);
    if (made == NULL || atomic_compare_exchange_strong(place, &none, made))
        return made;
    munmap(made, sizeof *made);
    return none;
}

static blocks_entry *make_leaf(_Atomic(blocks_entry *) *place) {
    size_t size_bytes = LEAF_ENTRIES * sizeof(blocks_entry);
    blocks_entry *none = NULL, *made = map_zeros(size_bytes, true);
    if (made == NULL || atomic_compare_exchange_strong(place, &none, made))
        return made;
    munmap((void *)(uintptr_t)made, size_bytes);
    return none;
}

/* NULL: nothing is known there, or with `make`, cannot be. */
static inline blocks_entry *entry_of(uint64_t address, bool make) {
    if (address >> ADDRESS_BITS != 0)
        return NULL;
    _Atomic(struct table *) *top = &tops[address >> (LEAF_SHIFT - 1) & 1][address >> TOP_SHIFT];
    struct table *table = atomic_load_explicit(top, memory_order_acquire);
    if (table == NULL && (!make || (table = make_table(top)) == NULL))
        return NULL;
    _Atomic(blocks_entry *) *place = &table->leaves[address >> TABLE_SHIFT & (TABLE_ENTRIES - 1)];
    blocks_entry *leaf = atomic_load_explicit(place, memory_order_acquire);
    if (leaf == NULL && (!make || (leaf = make_leaf(place)) == NULL))
        return NULL;
    return &leaf[address >> LEAF_SHIFT & (LEAF_ENTRIES - 1)];
}

blocks_entry *blocks_find(uint64_t address, bool make) {
    return entry_of(address, make);
}

static bool put_size(uint64_t address, uint64_t size_bytes) {
    blocks_entry *low = entry_of(address + BLOCKS_GRANULE_BYTES, true),
                 *high = entry_of(address + 2 * BLOCKS_GRANULE_BYTES, true);
    if (low == NULL || high == NULL)
        return false;
    atomic_store_explicit(low, (uint32_t)size_bytes, memory_order_relaxed);
    atomic_store_explicit(high, (uint32_t)(size_bytes >> 32), memory_order_relaxed);
    return true;
}

bool blocks_put(uint64_t address, const struct block *block) {
    blocks_entry *entry = entry_of(address, true);
    if (entry == NULL)
        return false;
    bool is_large = block->size_bytes >= BLOCKS_SIZE_BEHIND;
    if (is_large && !put_size(address, block->size_bytes))
        return false;
    uint32_t size = is_large ? BLOCKS_SIZE_BEHIND : (uint32_t)block->size_bytes;
    atomic_store_explicit(entry, block->site << BLOCKS_SIZE_BITS | size, memory_order_relaxed);
    return true;
}

/* Cleared, as other blocks may begin there later. */
static uint64_t take_word(uint64_t address) {
    blocks_entry *entry = entry_of(address, false);
    return entry != NULL ? atomic_exchange_explicit(entry, 0, memory_order_relaxed) : 0;
}

bool blocks_take(uint64_t address, struct block *block) {
    blocks_entry *entry = entry_of(address, false);
    uint32_t value = entry != NULL ? atomic_load_explicit(entry, memory_order_relaxed) : 0;
    if (value == 0)
        return false;
    atomic_store_explicit(entry, 0, memory_order_relaxed);
    block->site = value >> BLOCKS_SIZE_BITS;
    block->size_bytes = value & BLOCKS_SIZE_BEHIND;
    if (block->size_bytes == BLOCKS_SIZE_BEHIND)
        block->size_bytes = take_word(address + BLOCKS_GRANULE_BYTES) | take_word(address + 2 * BLOCKS_GRANULE_BYTES)
                                                                            << 32;
    return true;
}
