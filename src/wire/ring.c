#include "wire/ring.h"

/* What a writer needs stands together (agent/hot.h). */
#define HOT __attribute__((hot))

static HOT uint8_t *place(const struct wire_ring *ring, uint64_t position) {
    return ring->bytes + position % wire_ring_bytes(ring->size_bytes);
}

static HOT size_t left_before_end(const struct wire_ring *ring, uint64_t position) {
    uint32_t size_bytes = wire_ring_bytes(ring->size_bytes);
    return (size_t)(size_bytes - position % size_bytes);
}

static HOT void put_header(uint8_t *to, enum wire_type type, size_t size_bytes) {
    struct wire_record *record = (struct wire_record *)(void *)to;
    record->size_bytes = (uint32_t)size_bytes;
    record->type = (uint16_t)type;
    record->flags = 0;
}

HOT uint64_t wire_ring_position(const struct wire_ring *ring) {
    /* Aligned even when the other side has put something else there: then nothing lands beyond the ring's end. */
    return atomic_load_explicit(&ring->slot->written, memory_order_relaxed) & ~UINT64_C(7);
}

HOT const void *wire_ring_head(const struct wire_ring *ring) {
    return place(ring, wire_ring_position(ring));
}

HOT uint64_t wire_ring_room(const struct wire_ring *ring) {
    uint64_t used = wire_ring_position(ring) - atomic_load_explicit(&ring->slot->read, memory_order_acquire);
    uint32_t size_bytes = wire_ring_bytes(ring->size_bytes);
    return used < size_bytes ? size_bytes - used : 0;
}

HOT void *wire_ring_reserve(struct wire_ring *ring, uint64_t *position, enum wire_type type, size_t size_bytes) {
    size_t size = (size_bytes + 7) & ~(size_t)7;
    size_t left = left_before_end(ring, *position), pad = size > left ? left : 0;
    uint64_t read = atomic_load_explicit(&ring->slot->read, memory_order_acquire);
    if (size > WIRE_RING_BYTES / 2 || *position - read + pad + size > wire_ring_bytes(ring->size_bytes)) {
        atomic_fetch_add_explicit(&ring->slot->lost_records, 1, memory_order_relaxed);
        return NULL;
    }
    if (pad > 0)
        put_header(place(ring, *position), WIRE_PAD, pad);
    uint8_t *record = place(ring, *position + pad);
    put_header(record, type, size);
    *position += pad + size;
    return record;
}

HOT void wire_ring_commit(struct wire_ring *ring, uint64_t position) {
    atomic_store_explicit(&ring->slot->written, position, memory_order_release);
}

uint64_t wire_ring_written(const struct wire_ring *ring) {
    return atomic_load_explicit(&ring->slot->written, memory_order_acquire);
}

/* Read once: the writer may be hostile. */
static uint32_t record_size(const struct wire_record *record) {
    return *(const volatile uint32_t *)&record->size_bytes;
}

const struct wire_record *wire_ring_next(const struct wire_ring *ring, uint64_t *position, uint64_t written,
                                         bool *damaged) {
    *damaged = written - *position > wire_ring_bytes(ring->size_bytes) || *position % 8 != 0;
    while (!*damaged && *position != written) {
        const struct wire_record *record = (const struct wire_record *)(const void *)place(ring, *position);
        uint32_t size = record_size(record);
        *damaged = size < sizeof *record || size % 8 != 0 || size > left_before_end(ring, *position) ||
                   size > written - *position || size > WIRE_RING_BYTES;
        if (*damaged)
            break;
        *position += size;
        if (*(const volatile uint16_t *)&record->type != WIRE_PAD)
            return record;
    }
    return NULL;
}

void wire_ring_release(struct wire_ring *ring, uint64_t position) {
    atomic_store_explicit(&ring->slot->read, position, memory_order_release);
}
