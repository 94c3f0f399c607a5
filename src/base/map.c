#include "base/map.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 64 };

/* Fibonacci hashing: addresses differ in their middle bits, and the multiplication carries those to the top. */
static size_t slot_of(const struct map *map, uint64_t key) {
    uint64_t hash = key * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(hash >> 32) & (map->capacity - 1);
}

static struct map_entry *find_entry(const struct map *map, uint64_t key) {
    size_t slot = slot_of(map, key);
    while (map->entries[slot].used && map->entries[slot].key != key)
        slot = (slot + 1) & (map->capacity - 1);
    return &map->entries[slot];
}

void map_release(struct map *map) {
    free(map->entries);
    *map = (struct map){0};
}

void map_clear(struct map *map) {
    if (map->entries != NULL)
        memset(map->entries, 0, map->capacity * sizeof map->entries[0]);
    map->count = 0;
}

bool map_get(const struct map *map, uint64_t key, uint64_t *value) {
    if (map->capacity == 0)
        return false;
    const struct map_entry *entry = find_entry(map, key);
    if (entry->used)
        *value = entry->value;
    return entry->used;
}

static enum status grow(struct map *map) {
    struct map grown = {.capacity = map->capacity > 0 ? map->capacity * 2 : FIRST_CAPACITY, .count = map->count};
    grown.entries = calloc(grown.capacity, sizeof grown.entries[0]);
    if (grown.entries == NULL)
        return STATUS_FAILED;
    for (size_t i = 0; i < map->capacity; i++)
        if (map->entries[i].used)
            *find_entry(&grown, map->entries[i].key) = map->entries[i];
    free(map->entries);
    *map = grown;
    return STATUS_OK;
}

enum status map_set(struct map *map, uint64_t key, uint64_t value) {
    /* At most three quarters full, so that a search always meets a free entry soon. */
    if ((map->count + 1) * 4 > map->capacity * 3)
        TRY(grow(map));
    struct map_entry *entry = find_entry(map, key);
    if (!entry->used)
        map->count++;
    *entry = (struct map_entry){.key = key, .value = value, .used = true};
    return STATUS_OK;
}

bool map_remove(struct map *map, uint64_t key) {
    if (map->capacity == 0 || !find_entry(map, key)->used)
        return false;
    size_t hole = (size_t)(find_entry(map, key) - map->entries);
    map->entries[hole].used = false;
    map->count--;
    /* Whoever stands behind the hole and would be searched for across it moves into it. */
    for (size_t slot = (hole + 1) & (map->capacity - 1); map->entries[slot].used;
         slot = (slot + 1) & (map->capacity - 1)) {
        size_t home = slot_of(map, map->entries[slot].key);
        if (((slot - home) & (map->capacity - 1)) < ((slot - hole) & (map->capacity - 1)))
            continue;
        map->entries[hole] = map->entries[slot];
        map->entries[slot].used = false;
        hole = slot;
    }
    return true;
}
