#include "agent/sampled.h"

#include <sched.h>
#include <stdalign.h>
#include <sys/mman.h>

enum {
    SHARDS = 64,
    FIRST_CAPACITY = 128,
    SPINS = 100, /* before the processor is left to the one that holds the lock */
    FILTER_FULL = UINT8_MAX,
    PAGE_BYTES = 4096,
};

alignas(PAGE_BYTES) _Atomic uint8_t sampled_filter[SAMPLED_FILTER_BYTES];

struct shard {
    alignas(64) _Atomic bool locked;
    struct sampled_table table;
};
static struct shard shards[SHARDS];

/* The finaliser of MurmurHash3: every bit of the result depends on every bit of the address. The lowest bits choose the
 * shard, others the place in it. */
static uint64_t mix(uint64_t address) {
    address ^= address >> 33;
    address *= UINT64_C(0xff51afd7ed558ccd);
    address ^= address >> 33;
    address *= UINT64_C(0xc4ceb9fe1a85ec53);
    return address ^ address >> 33;
}

size_t sampled_table_home(uint64_t address, size_t capacity) {
    return (size_t)(mix(address) >> 16) & (capacity - 1);
}

static struct sampled *map_entries(size_t capacity) {
    void *entries =
        mmap(NULL, capacity * sizeof(struct sampled), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return entries == MAP_FAILED ? NULL : entries;
}

static void put(struct sampled_table *table, const struct sampled *block) {
    size_t place = sampled_table_home(block->address, table->capacity);
    while (table->entries[place].address != 0)
        place = (place + 1) & (table->capacity - 1);
    table->entries[place] = *block;
    table->count++;
}

/* From the first free place on, so that a run of entries that goes over the table's end keeps its order, too. */
static void put_all(struct sampled_table *table, const struct sampled_table *old) {
    size_t first = 0;
    while (first < old->capacity && old->entries[first].address != 0)
        first++;
    for (size_t i = 0; i < old->capacity; i++) {
        const struct sampled *entry = &old->entries[(first + i) & (old->capacity - 1)];
        if (entry->address != 0)
            put(table, entry);
    }
}

static bool grow(struct sampled_table *table) {
    struct sampled_table old = *table;
    struct sampled_table larger = {.capacity = old.entries == NULL ? FIRST_CAPACITY : 2 * old.capacity};
    larger.entries = map_entries(larger.capacity);
    if (larger.entries == NULL)
        return false;
    put_all(&larger, &old);
    *table = larger;
    sampled_table_release(&old);
    return true;
}

bool sampled_table_add(struct sampled_table *table, const struct sampled *block) {
    /* At least one place is free, at which every search ends. */
    if (4 * (table->count + 1) > 3 * table->capacity && !grow(table) && table->count + 1 >= table->capacity)
        return false;
    put(table, block);
    return true;
}

/* Moves what stands behind a place that has become free forward, as far as that is on the way from its home, so that no
 * search ends too early. */
static void close_gap(struct sampled_table *table, size_t gap) {
    size_t mask = table->capacity - 1;
    for (size_t place = (gap + 1) & mask; table->entries[place].address != 0; place = (place + 1) & mask) {
        size_t home = sampled_table_home(table->entries[place].address, table->capacity);
        if (((place - home) & mask) < ((place - gap) & mask))
            continue;
        table->entries[gap] = table->entries[place];
        gap = place;
    }
    table->entries[gap] = (struct sampled){0};
}

bool sampled_table_remove(struct sampled_table *table, uint64_t address, struct sampled *block) {
    if (table->count == 0)
        return false;
    size_t place = sampled_table_home(address, table->capacity);
    while (table->entries[place].address != 0 && table->entries[place].address != address)
        place = (place + 1) & (table->capacity - 1);
    if (table->entries[place].address == 0)
        return false;
    *block = table->entries[place];
    close_gap(table, place);
    table->count--;
    return true;
}

void sampled_table_release(struct sampled_table *table) {
    if (table->entries != NULL)
        munmap(table->entries, table->capacity * sizeof *table->entries);
    *table = (struct sampled_table){0};
}

static void count_in_filter(uint64_t address, int change) {
    _Atomic uint8_t *counter = &sampled_filter[sampled_class(address)];
    uint8_t old = atomic_load(counter);
    /* Once full it stays so: how many there are is not known any more. */
    while (old != FILTER_FULL && !atomic_compare_exchange_weak(counter, &old, (uint8_t)(old + change)))
        ;
}

static struct shard *lock_shard(uint64_t address) {
    struct shard *shard = &shards[mix(address) % SHARDS];
    for (unsigned spins = 0; atomic_exchange_explicit(&shard->locked, true, memory_order_acquire); spins++)
        if (spins >= SPINS)
            sched_yield();
    return shard;
}

static void unlock_shard(struct shard *shard) {
    atomic_store_explicit(&shard->locked, false, memory_order_release);
}

bool sampled_add(const struct sampled *block) {
    struct shard *shard = lock_shard(block->address);
    bool added = sampled_table_add(&shard->table, block);
    unlock_shard(shard);
    if (added)
        count_in_filter(block->address, 1);
    return added;
}

bool sampled_remove(uint64_t address, struct sampled *block) {
    struct shard *shard = lock_shard(address);
    bool removed = sampled_table_remove(&shard->table, address, block);
    unlock_shard(shard);
    if (removed)
        count_in_filter(address, -1);
    return removed;
}

void sampled_hold_everything(void) {
    for (size_t i = 0; i < SAMPLED_FILTER_BYTES; i++)
        atomic_store_explicit(&sampled_filter[i], FILTER_FULL, memory_order_relaxed);
}

void sampled_forget_all(void) {
    /* Not unmapped: a thread that is not in this process may have been about to change what says where they are. */
    for (size_t i = 0; i < SHARDS; i++) {
        shards[i].table = (struct sampled_table){0};
        atomic_store(&shards[i].locked, false);
    }
    /* Private memory without a file: it is zero again, and no copy is made of the parent's. */
    if (madvise((void *)(uintptr_t)sampled_filter, sizeof sampled_filter, MADV_DONTNEED) != 0)
        for (size_t i = 0; i < SAMPLED_FILTER_BYTES; i++)
            atomic_store_explicit(&sampled_filter[i], 0, memory_order_relaxed);
}
