#include "base/memory_pages.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* Objects lie scattered, and the reading of a processor's whole page costs as much as several of these, most of it
     * for the memory that it lands in. */
    PAGE_BYTES = 512,
    CHUNK_BYTES = 1 << 16,
    MAX_BYTES = 1 << 24,
    /* Larger reads go past the cache: they are bulk data that is wanted once. */
    BYPASS_BYTES = 1024,
};

static uint8_t *page_copy(const struct memory_pages *pages, size_t index) {
    size_t offset = index * pages->page_bytes;
    return pages->chunks[offset / CHUNK_BYTES] + offset % CHUNK_BYTES;
}

static enum status ensure_chunk(struct memory_pages *pages, size_t index) {
    size_t chunk = index * pages->page_bytes / CHUNK_BYTES;
    if (chunk < pages->chunk_capacity)
        return STATUS_OK;
    uint8_t **grown = realloc(pages->chunks, (chunk + 1) * sizeof grown[0]);
    if (grown == NULL)
        return STATUS_FAILED;
    pages->chunks = grown;
    grown[chunk] = malloc(CHUNK_BYTES);
    if (grown[chunk] == NULL)
        return STATUS_FAILED;
    pages->chunk_capacity = chunk + 1;
    return STATUS_OK;
}

static enum status get_page(struct memory_pages *pages, remote_addr page, const uint8_t **copy) {
    uint64_t index = 0;
    if (map_get(&pages->slots, page, &index)) {
        *copy = page_copy(pages, (size_t)index);
        return STATUS_OK;
    }
    if (pages->page_count * pages->page_bytes >= MAX_BYTES)
        memory_pages_clear(pages);
    TRY(ensure_chunk(pages, pages->page_count));
    uint8_t *slot = page_copy(pages, pages->page_count);
    TRY(memory_read(pages->under, page, slot, pages->page_bytes));
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
        remote_addr page = address & ~(remote_addr)(pages->page_bytes - 1);
        size_t from = (size_t)(address - page);
        size_t part = pages->page_bytes - from < size_bytes ? pages->page_bytes - from : size_bytes;
        const uint8_t *copy = NULL;
        TRY(get_page(pages, page, &copy));
        memcpy(to, copy + from, part);
        to += part;
        address += part;
        size_bytes -= part;
    }
    return STATUS_OK;
}

void memory_pages_init_sized(struct memory_pages *pages, struct memory *under, size_t page_bytes) {
    *pages = (struct memory_pages){.memory = {.read = read_cached}, .under = under, .page_bytes = page_bytes};
}

void memory_pages_init(struct memory_pages *pages, struct memory *under) {
    memory_pages_init_sized(pages, under, PAGE_BYTES);
}

void memory_pages_release(struct memory_pages *pages) {
    for (size_t i = 0; i < pages->chunk_capacity; i++)
        free(pages->chunks[i]);
    free(pages->chunks);
    map_release(&pages->slots);
    memory_pages_init_sized(pages, pages->under, pages->page_bytes);
}

void memory_pages_clear(struct memory_pages *pages) {
    if (pages->page_count == 0)
        return;
    map_clear(&pages->slots);
    pages->page_count = 0;
}
