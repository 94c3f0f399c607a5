/* A hash map from 64-bit keys (addresses, thread ids) to 64-bit values. */
#ifndef STROBE_BASE_MAP_H
#define STROBE_BASE_MAP_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map_entry {
    uint64_t key;
    uint64_t value;
    bool used;
};

/* Zero-initialised is an empty map. */
struct map {
    struct map_entry *entries;
    size_t capacity; /* a power of two, or 0 */
    size_t count;
};

void map_release(struct map *map);
/* Forgets the entries, keeps the capacity. */
void map_clear(struct map *map);
bool map_get(const struct map *map, uint64_t key, uint64_t *value);
/* Adds or replaces. STATUS_FAILED when there is no memory; the map is then as before. */
enum status map_set(struct map *map, uint64_t key, uint64_t value) MUST_USE;
/* Whether it was there. */
bool map_remove(struct map *map, uint64_t key);

#endif
