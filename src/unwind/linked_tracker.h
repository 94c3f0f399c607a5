/* One thread's Python stack, looked at again and again while the thread runs (3.8 to 3.10).
 *
 * Frames are objects scattered over the heap, linked by f_back. One call reads the thread state, whose `frame` names
 * the innermost one, and then the heads of all frames that were seen lately, whichever they are: so the chain of the
 * frame that is named has most likely been read in that same call. What `frame` names is the truth, whatever it names a
 * moment later: to take only looks between which nothing happened would favour what lasts long.
 *
 * The heads are read later than the pointer, though, and the thread runs on. What makes this work is that a frame which
 * has been left stays as it was for a while: each code object keeps one dead frame for its next call (co_zombieframe),
 * with the f_back of the last one. Where that is not so (the frame of a generator loses its f_back whenever it yields,
 * recursive calls take theirs from a free list which is linked by f_back, Objects/frameobject.c and genobject.c 3.8 to
 * 3.10), the caller is the one that it had when it was last seen running. And a caller that has moved on since did so
 * from the call before.
 *
 * The frames of recursive calls are another call's a moment later. Where such a chain turns out to be of two times,
 * what was read soon after the pointer is believed, and the rest is as it was when such a stack, of the depth that the
 * interpreter says it has, was seen whole. Looking again instead would favour what lasts long. */
#ifndef STROBE_UNWIND_LINKED_TRACKER_H
#define STROBE_UNWIND_LINKED_TRACKER_H

#include "base/map.h"
#include "cpython/frame.h"
#include "cpython/interp.h"
#include "unwind/call_sites.h"
#include "unwind/frame_study.h"
#include "unwind/seen_chains.h"
#include "unwind/tracked_stack.h"

enum { LINKED_HEAD_MAX_BYTES = 128 };

/* Fields are private but for `stack` and `paused`. */
struct linked_tracker {
    struct runtime *runtime;  /* borrowed */
    struct code_cache *codes; /* borrowed */
    struct tracked_stack stack;
    bool paused;            /* set by the caller: the thread stands still during a look */
    bool failed;            /* the last look was not taken */
    bool last_attempt;      /* what is doubtful is taken for what it seems */
    remote_addr frame_type; /* 0 until a frame was seen */
    uint64_t look;          /* how many reads there were */
    /* The frames that are read along. */
    struct linked_head *heads;
    size_t head_count; /* slots in use or free */
    size_t head_capacity;
    uint32_t free_head; /* list of free slots, one higher; 0 is none */
    struct map by_address;
    struct map contexts;        /* what was called from what was called from what, for certain */
    uint64_t least_surplus;     /* of calls that the interpreter counted over frames that were seen */
    struct map recursive_codes; /* addresses of code that was seen to call itself */
    uint32_t *order;            /* of reading */
    size_t shifty_count;        /* so many of the order are such that their caller changes */
    bool order_stale;
    size_t order_count;
    size_t order_capacity;
    uint32_t *chain; /* of this look, innermost first */
    size_t chain_count;
    size_t chain_capacity;
    bool recursive;         /* this look's chain has frames of recursive calls */
    bool deep;              /* the last one's had */
    bool doubtful;          /* it is not certain that these have called each other */
    size_t recursion_depth; /* calls that the interpreter counted when it said which frame is the innermost */
    uint32_t recalled;      /* the link of `chains` that has called the chain; 0: it is whole */
    uint32_t random;
    struct seen_chains chains;
    struct call_sites sites;
    struct frame_study study;
    struct memory_piece *pieces;
    size_t piece_capacity;
    uint8_t thread_bytes[THREAD_STATE_MAX_BYTES];
    remote_addr frame_meanwhile; /* the innermost frame when the first head had been read */
    remote_addr frame_after;     /* the innermost frame when all had been read */
};

/* Whether stacks of this runtime are such: those of 3.8 to 3.10. */
bool linked_tracker_supports(const struct runtime *runtime);

void linked_tracker_init(struct linked_tracker *tracker, struct runtime *runtime, struct code_cache *codes);
void linked_tracker_release(struct linked_tracker *tracker);
/* Forgets what was seen: after the code cache was released. */
void linked_tracker_forget(struct linked_tracker *tracker);

/* Looks. *thread is brought up to date. STATUS_TORN: the stack was at no attempt one that can be vouched for, and
 * frames are those of the last look. */
enum status linked_tracker_look(struct linked_tracker *tracker, struct thread_state *thread,
                                unsigned max_attempts) MUST_USE;

#endif
