/* One process's region (wire/region.h), as strobe has it mapped. Private to agent_*.c. */
#ifndef STROBE_SAMPLER_AGENT_REGION_H
#define STROBE_SAMPLER_AGENT_REGION_H

#include "base/status.h"
#include "wire/ring.h"

#include <signal.h>
#include <stddef.h>

/* A piece of a file that its other user may cut short at any time. What is lost that way reads as zeros from then on
 * instead of killing strobe. */
struct shared_piece {
    void *start;
    size_t size_bytes;
    volatile sig_atomic_t damaged;
    struct shared_piece *next;
};

struct agent_region {
    int fd;
    uint64_t inode; /* of its file, as struct mapping has them */
    uint32_t device;
    bool is_whole;            /* else it has a header only */
    struct shared_piece head; /* header and slots */
    struct wire_region facts; /* of the header, what does not change, as it was when the region was opened */
    struct shared_piece rings[WIRE_SLOTS]; /* mapped when first asked for */
};

/* Maps the file `name` in the folder. An agent that could not even begin leaves a header and no more, which says why:
 * then head.start is NULL and only the facts are there. STATUS_TORN when the agent has not finished it yet: try again;
 * STATUS_NOT_FOUND when there is none, STATUS_DAMAGED when it is none. */
enum status agent_region_open(int folder_fd, const char *name, struct agent_region **region) MUST_USE;
void agent_region_close(struct agent_region *region); /* NULL is fine */

static inline struct wire_region *agent_region_header(const struct agent_region *region) {
    return region->head.start;
}
static inline struct wire_slot *agent_region_slot(const struct agent_region *region, uint32_t index) {
    return wire_region_slot(region->head.start, index);
}
enum status agent_region_ring(struct agent_region *region, uint32_t index, struct wire_ring *ring) MUST_USE;
/* Whether it was cut short. */
bool agent_region_is_damaged(const struct agent_region *region);

/* As the header has them now. `reason` is always terminated. */
enum wire_state agent_region_state(const struct agent_region *region);
void agent_region_reason(const struct agent_region *region, char reason[WIRE_REASON_BYTES]);
bool agent_region_is_paused(const struct agent_region *region);
void agent_region_control(const struct agent_region *region, enum wire_control control);

#endif
