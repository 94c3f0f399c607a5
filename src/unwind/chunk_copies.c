#include "unwind/chunk_copies.h"

#include "base/array.h"
#include "base/bytes.h"

#include <stdlib.h>
#include <string.h>

enum {
    WORD_BYTES = 8,
    HEADER_BYTES = 64, /* at least those of the header, and there in any chunk */
    MAX_CHUNKS = 1 << 12,
    MAX_CHUNK_BYTES = 16 << 20,
    /* A stack of 100,000 frames has less. */
    MAX_BUFFER_BYTES = 32 << 20,
    FIRST_BUFFER_BYTES = 2048,
    SPARE_LOOKS = 64,
};

void chunk_copies_release(struct chunk_copies *copies) {
    free(copies->spans);
    free(copies->now);
    free(copies->seen);
    *copies = (struct chunk_copies){0};
}

void chunk_copies_forget(struct chunk_copies *copies) {
    copies->count = 0;
    copies->newest = 0;
    copies->copied = 0;
    copies->seen_bytes = 0;
}

const struct chunk_span *chunk_copies_find(const struct chunk_copies *copies, remote_addr address) {
    for (size_t i = copies->count; i-- > 0;)
        if (address >= copies->spans[i].address && address < copies->spans[i].limit)
            return &copies->spans[i];
    return NULL;
}

static void limit_seen(struct chunk_copies *copies, size_t end) {
    copies->seen_bytes = end < copies->seen_bytes ? end : copies->seen_bytes;
}

static enum status push_span(struct chunk_copies *copies, const struct chunk_span *span) {
    if (copies->count == MAX_CHUNKS)
        return STATUS_LIMIT;
    TRY(array_reserve((void **)&copies->spans, &copies->capacity, copies->count + 1, sizeof copies->spans[0]));
    copies->spans[copies->count] = *span;
    copies->spans[copies->count++].offset = SIZE_MAX;
    return STATUS_OK;
}

/* What its header says of a chunk that is not the newest. */
static enum status read_older(struct runtime *runtime, remote_addr address, struct chunk_span *span,
                              remote_addr *previous) {
    const struct layout_stack_chunk *fields = &runtime->layout.stack_chunk;
    uint8_t header[HEADER_BYTES];
    TRY(memory_read(runtime->live, address, header, sizeof header));
    uint64_t size_bytes = load_u64(header + fields->size), top = load_u64(header + fields->top);
    if (size_bytes > MAX_CHUNK_BYTES || size_bytes < fields->data || top > (size_bytes - fields->data) / WORD_BYTES)
        return STATUS_TORN;
    *span = (struct chunk_span){
        .address = address, .limit = address + size_bytes, .size_bytes = fields->data + (size_t)top * WORD_BYTES};
    *previous = load_u64(header + fields->previous);
    return STATUS_OK;
}

/* From the newest chunk down. */
static enum status find_chunks(struct chunk_copies *copies, struct runtime *runtime, const struct chunk_span *newest) {
    const struct layout_stack_chunk *fields = &runtime->layout.stack_chunk;
    remote_addr older = 0;
    chunk_copies_forget(copies);
    TRY(memory_read_u64(runtime->live, newest->address + fields->previous, &older));
    TRY(push_span(copies, newest));
    while (older != 0) {
        struct chunk_span span;
        TRY(read_older(runtime, older, &span, &older));
        TRY(push_span(copies, &span));
    }
    for (size_t low = 0, high = copies->count; high > low + 1; low++) {
        struct chunk_span swapped = copies->spans[--high];
        copies->spans[high] = copies->spans[low];
        copies->spans[low] = swapped;
    }
    copies->newest = copies->count - 1;
    return STATUS_OK;
}

/* The usual way to another newest chunk: pushed onto the one before. */
static enum status push_newest(struct chunk_copies *copies, struct runtime *runtime, const struct chunk_span *newest,
                               bool *pushed) {
    struct chunk_span *below = &copies->spans[copies->newest], again;
    remote_addr older = 0, previous = 0;
    TRY(memory_read_u64(runtime->live, newest->address + runtime->layout.stack_chunk.previous, &older));
    *pushed = older == below->address;
    if (!*pushed)
        return STATUS_OK;
    TRY(read_older(runtime, below->address, &again, &previous));
    below->size_bytes = again.size_bytes;
    copies->count = copies->newest + 1;
    TRY(push_span(copies, newest));
    copies->newest++;
    return STATUS_OK;
}

/* Whether the thread's newest chunk is one of the spans. Those above it are given up after a while. */
static bool find_newest(struct chunk_copies *copies, const struct thread_state *thread) {
    const struct chunk_span *newest = chunk_copies_find(copies, thread->datastack_chunk);
    if (newest == NULL || newest->address != thread->datastack_chunk)
        return false;
    copies->newest = (size_t)(newest - copies->spans);
    copies->looks_without = copies->newest + 1 < copies->count ? copies->looks_without + 1 : 0;
    if (copies->looks_without > SPARE_LOOKS) {
        copies->count = copies->newest + 1;
        limit_seen(copies, copies->spans[copies->count].offset);
    }
    return true;
}

enum status chunk_copies_follow(struct chunk_copies *copies, struct runtime *runtime,
                                const struct thread_state *thread) {
    struct chunk_span newest = {.address = thread->datastack_chunk, .limit = thread->datastack_limit};
    bool pushed = false;
    if (find_newest(copies, thread))
        return STATUS_OK;
    if (newest.limit < newest.address || newest.limit - newest.address > MAX_CHUNK_BYTES)
        return STATUS_TORN;
    enum status status = copies->count > 0 ? push_newest(copies, runtime, &newest, &pushed) : STATUS_OK;
    if (status == STATUS_OK && !pushed)
        status = find_chunks(copies, runtime, &newest);
    copies->looks_without = 0;
    if (status != STATUS_OK)
        chunk_copies_forget(copies);
    return status;
}

static enum status grow_buffer(uint8_t **buffer, size_t size_bytes) {
    uint8_t *grown = realloc(*buffer, size_bytes);
    if (grown == NULL)
        return STATUS_FAILED;
    *buffer = grown;
    return STATUS_OK;
}

enum status chunk_copies_reserve(struct chunk_copies *copies, size_t newest_bytes) {
    size_t total_bytes = 0, buffer_bytes = copies->buffer_bytes > 0 ? copies->buffer_bytes : FIRST_BUFFER_BYTES;
    struct chunk_span *newest = &copies->spans[copies->newest];
    /* What lies behind it in the buffer is not moved for a little. */
    if (copies->newest + 1 == copies->count || newest->size_bytes < newest_bytes)
        newest->size_bytes = newest_bytes;
    for (size_t i = 0; i < copies->count; i++) {
        struct chunk_span *span = &copies->spans[i];
        if (span->offset != total_bytes)
            limit_seen(copies, span->offset < total_bytes ? span->offset : total_bytes);
        span->offset = total_bytes;
        total_bytes += span->size_bytes;
    }
    if (total_bytes > MAX_BUFFER_BYTES)
        return STATUS_LIMIT;
    while (buffer_bytes < total_bytes)
        buffer_bytes *= 2;
    if (buffer_bytes == copies->buffer_bytes)
        return STATUS_OK;
    TRY(grow_buffer(&copies->now, buffer_bytes));
    TRY(grow_buffer(&copies->seen, buffer_bytes));
    copies->buffer_bytes = buffer_bytes;
    return STATUS_OK;
}

void chunk_copies_list_pieces(const struct chunk_copies *copies, struct memory_piece *pieces) {
    for (size_t i = 0; i < copies->count; i++)
        pieces[i] = (struct memory_piece){copies->spans[i].address, copies->now + copies->spans[i].offset,
                                          copies->spans[i].size_bytes};
}

remote_addr chunk_copies_end(const struct chunk_copies *copies, const struct layout *layout,
                             const struct chunk_span *span) {
    const struct layout_stack_chunk *fields = &layout->stack_chunk;
    return span->address + fields->data + load_u64(copies->now + span->offset + fields->top) * WORD_BYTES;
}

const struct chunk_span *chunk_copies_newer(const struct chunk_copies *copies, const struct layout *layout,
                                            const struct chunk_span *span) {
    size_t next = (size_t)(span - copies->spans) + 1;
    if (next >= copies->copied)
        return NULL;
    const struct chunk_span *newer = &copies->spans[next];
    bool linked = load_u64(copies->now + newer->offset + layout->stack_chunk.previous) == span->address;
    return linked ? newer : NULL;
}

/* How many of the bytes are the same; a multiple of a word. */
static size_t count_same_bytes(const uint8_t *one, const uint8_t *other, size_t size_bytes) {
    enum { BLOCK_BYTES = 512, LINE_BYTES = 64 };
    size_t same_bytes = 0;
    if (memcmp(one, other, size_bytes) == 0)
        return size_bytes - size_bytes % WORD_BYTES;
    while (same_bytes + BLOCK_BYTES <= size_bytes && memcmp(one + same_bytes, other + same_bytes, BLOCK_BYTES) == 0)
        same_bytes += BLOCK_BYTES;
    while (same_bytes + LINE_BYTES <= size_bytes && memcmp(one + same_bytes, other + same_bytes, LINE_BYTES) == 0)
        same_bytes += LINE_BYTES;
    while (same_bytes + WORD_BYTES <= size_bytes && load_u64(one + same_bytes) == load_u64(other + same_bytes))
        same_bytes += WORD_BYTES;
    return same_bytes;
}

size_t chunk_copies_count_same(const struct chunk_copies *copies, const struct layout *layout) {
    size_t data = layout->stack_chunk.data, same_bytes = 0;
    for (size_t i = 0; i < copies->copied; i++) {
        const struct chunk_span *span = &copies->spans[i];
        size_t known = copies->seen_bytes > span->offset ? copies->seen_bytes - span->offset : 0;
        size_t common = span->size_bytes < known ? span->size_bytes : known;
        if (common <= data)
            break;
        /* The header's `top` is left over from when the chunk was last not the newest. */
        size_t start = span->offset + data;
        size_t same = data + count_same_bytes(copies->now + start, copies->seen + start, common - data);
        same_bytes = span->offset + same;
        if (same != span->size_bytes)
            break;
    }
    return same_bytes;
}

void chunk_copies_remember(struct chunk_copies *copies, size_t start, size_t end) {
    if (end > start)
        memcpy(copies->seen + start, copies->now + start, end - start);
    copies->seen_bytes = end;
}
