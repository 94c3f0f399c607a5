/* One ring: a thread writes records, strobe reads them. Wait-free on both sides. Async-signal-safe; the writer's
 * functions must not interrupt each other (a signal handler that could leaves its record out). */
#ifndef STROBE_WIRE_RING_H
#define STROBE_WIRE_RING_H

#include "wire/records.h"
#include "wire/region.h"

#include <stdbool.h>
#include <stddef.h>

struct wire_ring {
    struct wire_slot *slot;
    uint8_t *bytes;
    uint32_t size_bytes; /* as wire_region.ring_bytes */
};

/* Room for a record of that size (rounded up to 8; at most WIRE_RING_BYTES / 2), contiguous; NULL, and counted as lost,
 * when it does not fit. Nothing is visible to the reader before wire_ring_commit; several records may be reserved
 * before. The header is filled in. */
void *wire_ring_reserve(struct wire_ring *ring, uint64_t *position, enum wire_type type, size_t size_bytes);
/* Makes all that was reserved up to `position` visible. A writer begins with *position = wire_ring_position(). */
void wire_ring_commit(struct wire_ring *ring, uint64_t position);
uint64_t wire_ring_position(const struct wire_ring *ring);
/* Where the next record will most likely stand. */
const void *wire_ring_head(const struct wire_ring *ring);
/* How many bytes of it are free; the reader may give more back at any time. */
uint64_t wire_ring_room(const struct wire_ring *ring);

/* The next record at *position, which it moves on; NULL when there is none, and *position is where to begin next time.
 * *damaged: what stands there is no record; all up to what was written is to be skipped. The record may be changed by
 * the other side while it is looked at: copy it before checking it. */
const struct wire_record *wire_ring_next(const struct wire_ring *ring, uint64_t *position, uint64_t written,
                                         bool *damaged);
/* What was written so far. Hostile input: less than was read, or more than a ring ahead, is damage. */
uint64_t wire_ring_written(const struct wire_ring *ring);
/* Gives the room up to `position` back to the writer. */
void wire_ring_release(struct wire_ring *ring, uint64_t position);

#endif
