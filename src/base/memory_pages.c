#include "base/memory_pages.h"

#include <stdlib.h>
#include <string.h>

enum {
    PAGE_BYTES = 4096,
    CHUNK_PAGES = 16,
    MAX_PAGES = 4096,
    /* Larger reads go past the cache: they are bulk data that is wanted once. */
    BYPASS_BYTES = 16 * PAGE_BYTES,
    PREFETCH_BATCH = 64,
};

static uint8_t *page_copy(const struct memory_pages *pages, size_t index) {
    return pages->chunks[index / CHUNK_PAGES] + index % CHUNK_PAGES * PAGE_BYTES;
}

static enum status ensure_chunk(struct memory_pages *pages, size_t index) {
    size_t chunk = index / CHUNK_PAGES;
    if (chunk < pages->chunk_capacity)
        return STATUS_OK;
    uint8_t **grown = realloc(pages->chunks, (chunk + 1) * sizeof grown[0]);
    if (grown == NULL)
        return STATUS_FAILED;
    pages->chunks = grown;
    grown[chunk] = malloc((size_t)CHUNK_PAGES * PAGE_BYTES);
    if (grown[chunk] == NULL)
        return STATUS_FAILED;
    pages->chunk_capacity = chunk + 1;
    return STATUS_OK;
}

/* A free slot for one more page; it counts only once map_set has named it. */
static enum status next_slot(struct memory_pages *pages, size_t ahead, uint8_t **copy) {
    TRY(ensure_chunk(pages, pages->page_count + ahead));
    *copy = page_copy(pages, pages->page_count + ahead);
    return STATUS_OK;
}

static enum status get_page(struct memory_pages *pages, remote_addr page, const uint8_t **copy) {
    uint64_t index = 0;
    if (map_get(&pages->slots, page, &index)) {
        *copy = page_copy(pages, (size_t)index);
        return STATUS_OK;
    }
    if (pages->page_count >= MAX_PAGES)
        memory_pages_clear(pages);
    uint8_t *slot = NULL;
    TRY(next_slot(pages, 0, &slot));
    TRY(memory_read(pages->under, page, slot, PAGE_BYTES));
    TRY(map_set(&pages->slots, page, pages->page_count++));
    *copy = slot;
    return STATUS_OK;
}

static enum status read_cached(struct memory *memory, remote_addr address, void *buffer, size_t size_bytes) {
    struct memory_pages *pages = (struct memory_pages *)memory;
    if (size_bytes > BYPASS_BYTES)
        return memory_read(pages->under, address, buffer, size_bytes);
    uint8_t *to = buffer;
    while (size_bytes > 0) {
        remote_addr page = address & ~(remote_addr)(PAGE_BYTES - 1);
        size_t from = (size_t)(address - page);
        size_t part = PAGE_BYTES - from < size_bytes ? PAGE_BYTES - from : size_bytes;
        const uint8_t *copy = NULL;
        TRY(get_page(pages, page, &copy));
        memcpy(to, copy + from, part);
        to += part;
        address += part;
        size_bytes -= part;
    }
    return STATUS_OK;
}

void memory_pages_init(struct memory_pages *pages, struct memory *under) {
    *pages = (struct memory_pages){.memory = {.read = read_cached}, .under = under};
}

void memory_pages_release(struct memory_pages *pages) {
    for (size_t i = 0; i < pages->chunk_capacity; i++)
        free(pages->chunks[i]);
    free(pages->chunks);
    map_release(&pages->slots);
    memory_pages_init(pages, pages->under);
}

void memory_pages_clear(struct memory_pages *pages) {
    map_clear(&pages->slots);
    pages->page_count = 0;
}

/* Reads a batch of pages that are not cached yet: in one call, or one by one when one of them is bad. */
static void fetch_batch(struct memory_pages *pages, struct memory_piece *batch, size_t count) {
    bool whole = memory_read_pieces(pages->under, batch, count) == STATUS_OK;
    if (!whole)
        return; /* get_page will ask for each of them when it is wanted */
    for (size_t i = 0; i < count; i++)
        if (map_set(&pages->slots, batch[i].address, pages->page_count++) != STATUS_OK)
            return;
}

static bool in_batch(const struct memory_piece *batch, size_t count, remote_addr page) {
    for (size_t i = 0; i < count; i++)
        if (batch[i].address == page)
            return true;
    return false;
}

void memory_pages_prefetch(struct memory_pages *pages, const remote_addr *addresses, size_t count) {
    struct memory_piece batch[PREFETCH_BATCH];
    size_t filled = 0;
    for (size_t i = 0; i < count && pages->page_count + PREFETCH_BATCH < MAX_PAGES; i++) {
        remote_addr page = addresses[i] & ~(remote_addr)(PAGE_BYTES - 1);
        uint64_t index = 0;
        if (page == 0 || map_get(&pages->slots, page, &index) || in_batch(batch, filled, page))
            continue;
        uint8_t *slot = NULL;
        if (next_slot(pages, filled, &slot) != STATUS_OK)
            return;
        batch[filled++] = (struct memory_piece){page, slot, PAGE_BYTES};
        if (filled == PREFETCH_BATCH) {
            fetch_batch(pages, batch, filled);
            filled = 0;
        }
    }
    if (filled > 0)
        fetch_batch(pages, batch, filled);
}
