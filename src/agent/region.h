/* The memory shared with strobe (wire/region.h), seen from the process that makes it. No descriptor stays open. */
#ifndef STROBE_AGENT_REGION_H
#define STROBE_AGENT_REGION_H

#include "base/status.h"
#include "wire/region.h"

/* Makes this process's file in `folder` and maps all that stands before the rings, and ring 0.
 * `ring_bytes`: as wire_region's. All else is zero. A
 * child of fork does not have the rings; the rest, which something may still point to, it has to give back. When it
 * fails and the file could be made, the reason stands in it. Changes errno. */
enum status region_make(const char *folder, uint32_t ring_bytes, struct wire_region **region) MUST_USE;
/* In a child of fork: gives back what it has of the parent's. */
void region_forget(struct wire_region *region);
/* For a process that cannot be sampled: a file that says so, and has no slots. Changes errno. */
void region_leave_reason(const char *folder, const char *reason);

/* Makes sure that a ring is mapped, at *bytes (NULL: it is not yet), and that its memory is really there, so that
 * writing into it cannot fail; not when too little would be left to the program. `below` is a ring that is mapped,
 * `distance` rings below. Needs neither a path nor a descriptor: the program may have changed its root or its user, or
 * run out of descriptors. Async-signal-safe. Changes errno. */
enum status region_map_ring(uint8_t *below, uint32_t distance, uint32_t ring_bytes, uint8_t **bytes) MUST_USE;

static inline uint8_t *region_first_ring(struct wire_region *region) {
    return (uint8_t *)region + wire_ring_offset(0);
}

#endif
