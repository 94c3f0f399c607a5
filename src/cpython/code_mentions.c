#include "base/array.h"
#include "cpython/code.h"
#include "cpython/tuple.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_TUPLE_ITEMS = 1 << 16, MAX_MENTIONS = 1 << 13 };

static int compare(const void *one, const void *other) {
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

/* Adds the items of one of the code object's tuples. */
static enum status add_tuple(struct runtime *runtime, const struct code *code, layout_offset field, uint64_t **all,
                             size_t *count) {
    remote_addr tuple = 0;
    uint64_t *items = NULL;
    size_t item_count = 0, capacity = *count;
    TRY(memory_read_u64(runtime->objects, code->address + field, &tuple));
    TRY(tuple_read(runtime, tuple, MAX_TUPLE_ITEMS, &items, &item_count));
    enum status status = array_reserve((void **)all, &capacity, *count + item_count, sizeof items[0]);
    if (status == STATUS_OK && item_count > 0)
        memcpy(*all + *count, items, item_count * sizeof items[0]);
    *count += status == STATUS_OK ? item_count : 0;
    free(items);
    return status;
}

static enum status collect(struct runtime *runtime, const struct code *code, uint64_t **all, size_t *count) {
    const struct layout_code *fields = &runtime->layout.code;
    const layout_offset tuples[] = {fields->co_names, fields->co_localsplusnames, fields->co_consts};
    for (size_t i = 0; i < sizeof tuples / sizeof tuples[0]; i++)
        TRY(layout_has(tuples[i]) ? add_tuple(runtime, code, tuples[i], all, count) : STATUS_NOT_FOUND);
    if (*count > 0)
        qsort(*all, *count, sizeof(*all)[0], compare);
    return *count <= MAX_MENTIONS ? STATUS_OK : STATUS_LIMIT;
}

static void read_mentions(struct code_cache *cache, struct code *code) {
    uint64_t *all = NULL;
    size_t count = 0;
    code->mentions_known = true;
    if (collect(cache->runtime, code, &all, &count) == STATUS_OK && count > 0) {
        uint64_t *kept = arena_take(&cache->arena, count * sizeof kept[0]);
        if (kept != NULL) {
            memcpy(kept, all, count * sizeof kept[0]);
            cache->size_bytes += count * sizeof kept[0];
            code->mentions = kept;
            code->mention_count = (uint32_t)count;
        }
    }
    free(all);
}

bool code_cache_mentions(struct code_cache *cache, const struct code *code, const struct code *other) {
    if (!code->mentions_known)
        read_mentions(cache, (struct code *)(uintptr_t)code);
    const uint64_t sought[] = {other->name_address, other->address};
    for (size_t i = 0; i < sizeof sought / sizeof sought[0] && code->mention_count > 0; i++)
        if (bsearch(&sought[i], code->mentions, code->mention_count, sizeof sought[i], compare) != NULL)
            return true;
    return false;
}
