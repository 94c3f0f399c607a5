/* A hash map whose keys are contents of any length, of which it keeps a digest only: what is equal is found again
 * without being stored. */
#ifndef STROBE_BASE_DIGEST_H
#define STROBE_BASE_DIGEST_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 96 bits: among a million contents two share one with a chance of 10^-17. */
struct digest {
    uint64_t low;
    uint32_t high;
};

/* Differs from one run of the program to the next, so that no target can choose names that collide. */
struct digest digest_of(const void *content, size_t size_bytes);
/* Keys of two numbers are kept as they are. */
struct digest digest_of_pair(uint32_t first, uint32_t second);

struct digest_entry {
    uint64_t low;
    uint32_t high;
    uint32_t value; /* 0: free */
};

/* Zero-initialised is an empty map. */
struct digest_map {
    struct digest_entry *entries;
    size_t capacity; /* a power of two, or 0 */
    size_t count;
};

void digest_map_release(struct digest_map *map);
/* Forgets the entries, keeps the capacity. */
void digest_map_clear(struct digest_map *map);
/* The value of a key, or 0. */
uint32_t digest_map_get(const struct digest_map *map, struct digest key);
/* Adds or replaces; `value` must not be 0. STATUS_FAILED when there is no memory; the map is then as before. */
enum status digest_map_set(struct digest_map *map, struct digest key, uint32_t value) MUST_USE;

#endif
