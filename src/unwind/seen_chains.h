/* Chains of callers that were seen whole: for a function at a depth, who called it, who called that one, and so on.
 * Bounded: when it is full everything is forgotten. Pure. */
#ifndef STROBE_UNWIND_SEEN_CHAINS_H
#define STROBE_UNWIND_SEEN_CHAINS_H

#include "base/map.h"
#include "cpython/code.h"
#include "unwind/tracked_stack.h"

/* A caller, where it called, and its own caller: the place of that in `links`, 0 when there is none. */
struct chain_link {
    const struct code *code;
    int32_t instruction_bytes;
    uint32_t caller;
};

/* Zero-initialised knows nothing. Fields are private but for `links`. */
struct seen_chains {
    struct chain_link *links; /* from 1 on */
    size_t link_count;
    size_t link_capacity;
    struct caller_set *sets; /* of the callers of a function at a depth */
    size_t set_count;
    size_t set_capacity;
    struct map links_by_content;
    struct map sets_by_place;
};

void seen_chains_release(struct seen_chains *chains);
void seen_chains_forget(struct seen_chains *chains);

/* Learns a stack, outermost frame first, of which that one is at `depth`; of the first `known_count` nothing.
 * STATUS_FAILED when there is no memory. */
enum status seen_chains_note(struct seen_chains *chains, const struct tracked_frame *frames, size_t count, size_t depth,
                             size_t known_count) MUST_USE;

/* The caller of the outermost of `codes`, innermost first, of which the first is at that depth, when these were
 * seen like that; 0 when they were not (or when there is none). Of several one, the likelier the more often it
 * was seen; `random` decides. *times: how often that was seen in all. */
uint32_t seen_chains_recall(const struct seen_chains *chains, const struct code *const *codes, size_t count,
                            size_t depth, uint32_t random, uint64_t *times);

#endif
