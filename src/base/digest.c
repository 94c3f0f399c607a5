#include "base/digest.h"

#include "base/bytes.h"

#include <stdlib.h>
#include <sys/auxv.h>
#include <xxhash.h>

enum { FIRST_CAPACITY = 64 };

/* The 16 random bytes that the kernel gives each process. */
static uint64_t random_seed(void) {
    const void *bytes = (const void *)getauxval(AT_RANDOM); // NOLINT(performance-no-int-to-ptr)
    return bytes != NULL ? load_u64(bytes) : 0;
}

struct digest digest_of(const void *content, size_t size_bytes) {
    XXH128_hash_t hash = XXH3_128bits_withSeed(content, size_bytes, random_seed());
    return (struct digest){.low = hash.low64, .high = (uint32_t)hash.high64};
}

struct digest digest_of_pair(uint32_t first, uint32_t second) {
    return (struct digest){.low = (uint64_t)first << 32 | second};
}

static struct digest_entry *find_entry(const struct digest_map *map, uint64_t low, uint32_t high) {
    /* A pair is no hash yet: multiplied, its bits reach the top. */
    size_t slot = (size_t)(((low ^ high) * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (map->capacity - 1);
    while (map->entries[slot].value != 0 && (map->entries[slot].low != low || map->entries[slot].high != high))
        slot = (slot + 1) & (map->capacity - 1);
    return &map->entries[slot];
}

void digest_map_release(struct digest_map *map) {
    free(map->entries);
    *map = (struct digest_map){0};
}

void digest_map_clear(struct digest_map *map) {
    if (map->entries != NULL)
        memset(map->entries, 0, map->capacity * sizeof map->entries[0]);
    map->count = 0;
}

uint32_t digest_map_get(const struct digest_map *map, struct digest key) {
    return map->capacity > 0 ? find_entry(map, key.low, key.high)->value : 0;
}

static enum status grow(struct digest_map *map) {
    struct digest_map grown = {.capacity = map->capacity > 0 ? map->capacity * 2 : FIRST_CAPACITY, .count = map->count};
    grown.entries = calloc(grown.capacity, sizeof grown.entries[0]);
    if (grown.entries == NULL)
        return STATUS_FAILED;
    for (size_t i = 0; i < map->capacity; i++)
        if (map->entries[i].value != 0)
            *find_entry(&grown, map->entries[i].low, map->entries[i].high) = map->entries[i];
    free(map->entries);
    *map = grown;
    return STATUS_OK;
}

enum status digest_map_set(struct digest_map *map, struct digest key, uint32_t value) {
    /* At most three quarters full, so that a search always meets a free entry soon. */
    if ((map->count + 1) * 4 > map->capacity * 3)
        TRY(grow(map));
    struct digest_entry *entry = find_entry(map, key.low, key.high);
    if (entry->value == 0)
        map->count++;
    *entry = (struct digest_entry){.low = key.low, .high = key.high, .value = value};
    return STATUS_OK;
}
