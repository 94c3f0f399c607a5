/* What linked_tracker.c and its parts share: linked_heads.c keeps the frames that are read along and reads them,
 * linked_sites.c tells where callers stood when they called. Private to these. */
#ifndef STROBE_UNWIND_LINKED_PARTS_H
#define STROBE_UNWIND_LINKED_PARTS_H

#include "base/bytes.h"
#include "unwind/linked_tracker.h"

enum {
    /* Frames read along that were not part of the last stack. Each costs 0.2 µs a look. */
    LINKED_MAX_OTHERS = 24,
    /* So many looks does a frame that was not seen stay read along, and a frame whose caller changed read first. */
    LINKED_MEMORY_LOOKS = 1024,
    /* Of a frame, so many callers are remembered. */
    LINKED_CALLERS = 4,
};

/* What was last read of a frame, and what is remembered of it. */
struct linked_head {
    remote_addr address;
    uint8_t bytes[LINKED_HEAD_MAX_BYTES];
    uint64_t read;                       /* the look of which the bytes are */
    uint64_t chained;                    /* the look of which it was last part of the stack */
    uint64_t ordered;                    /* the look after which it was put into the order */
    uint64_t shifted;                    /* the look at which its caller was another than before; 0: never */
    remote_addr callers[LINKED_CALLERS]; /* its callers when it was seen running, the last one first, */
    remote_addr own_code;                /* and what it ran then itself */
    uint32_t caller_index;               /* where its caller's head was found last */
    bool is_first;                       /* was read first at the last look */
    uint32_t depth;                      /* callers above it when it was last part of the stack */
    bool shifty;                         /* is read first */
    bool recursive;                      /* runs code that calls itself */
    const struct code *code;             /* NULL: not looked up yet */
    uint32_t code_epoch;
    uint32_t next_free;
};

static inline const struct layout *linked_layout(const struct linked_tracker *tracker) {
    return &tracker->runtime->layout;
}

/* Everything in one call: the thread state, all heads, and the pointer to the innermost frame again. */
enum status linked_heads_read(struct linked_tracker *tracker, struct thread_state *thread) MUST_USE;
/* The head of the frame at `address` as of this look; `guess` is where it may be. */
enum status linked_heads_get(struct linked_tracker *tracker, remote_addr address, uint32_t guess,
                             uint32_t *index) MUST_USE;
bool linked_head_runs(const struct linked_tracker *tracker, const struct linked_head *head);
/* Whether a frame that runs stands at `address`. */
bool linked_heads_runs_at(struct linked_tracker *tracker, remote_addr address, uint32_t guess);
/* What to read next time, and in which order. */
enum status linked_heads_predict(struct linked_tracker *tracker) MUST_USE;
void linked_heads_forget(struct linked_tracker *tracker);
/* Sets head->code: what stands at `address`. */
enum status linked_head_code(struct linked_tracker *tracker, struct linked_head *head, remote_addr address) MUST_USE;

/* Whether a caller that runs and stands at an instruction can have called that, as far as is known; *certain: it does
 * from there. STATUS_TORN: it cannot. */
enum status linked_sites_check(struct linked_tracker *tracker, const struct linked_head *caller,
                               int32_t instruction_bytes, const struct code *callee, bool *certain) MUST_USE;
/* Where a caller stood when it called, given where it stands now: *instruction_bytes. STATUS_TORN: it is worth another
 * look. */
enum status linked_sites_place(struct linked_tracker *tracker, const struct linked_head *caller,
                               const struct linked_head *callee, int32_t *instruction_bytes) MUST_USE;

#endif
