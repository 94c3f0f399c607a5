/* One thread's Python stack, looked at again and again while the thread runs (3.11 and later).
 *
 * The chunks of the data stack are copied in one call. The kernel copies upwards, and the thread pushes and pops
 * at the upper end, so the copy is nearly of one instant; where the stack ended at that instant is found in the copy
 * itself, from the root up: a frame is live when it follows the one below in memory, says that it was called by it,
 * runs inside its code, and its caller stands on a call of it. The thread state's own pointer to the innermost frame is
 * of a later instant. It serves for what the copy cannot show: frames outside of the chunks (generators, calls from C),
 * and is not read where there can be none.
 *
 * A copy is of one instant only nearly. Each frame is taken for what its own bytes say at the instant when they were
 * copied: one that was popped by then was not there, one that was running then was, whatever its caller, copied a
 * moment earlier, says of what it was about to do. As many frames come as go in such a moment, so shares are right;
 * whoever takes now the one and now the other for the truth sees too much of callers, or of callees. What the caller's
 * bytes do not tell yet, calls that were seen before do (seen_calls.h): from where it called, and which generators a
 * frame was running when these have gone on since. What was never seen whole is not made up.
 *
 * What is in the copy as it is remembered of looks before is not decoded again. */
#ifndef STROBE_UNWIND_STACK_TRACKER_H
#define STROBE_UNWIND_STACK_TRACKER_H

#include "base/memory_pages.h"
#include "cpython/callable.h"
#include "cpython/frame.h"
#include "cpython/interp.h"
#include "unwind/chunk_copies.h"
#include "unwind/seen_calls.h"
#include "unwind/tracked_stack.h"

enum {
    TRACKER_MAX_OUTSIDE = 128,
    TRACKER_MAX_AGAIN = 64,
    TRACKER_DOUBTS = 128,
    TRACKER_COUNTS = 128,
    TRACKER_CALLABLES = 128,
    /* Of `nearby`. What is in one page is there when any of it is. To copy all of one costs not twice what a frame of
     * it does, and coroutines that await one another, about as large, are mostly allocated from few. */
    TRACKER_NEARBY_BYTES = 4096
};

/* Fields are private but for `stack`, `paused`, `calls`, `nearby`, and those of a read ahead. */
struct stack_tracker {
    struct runtime *runtime;  /* borrowed */
    struct code_cache *codes; /* borrowed */
    struct tracked_stack stack;
    bool paused;      /* set by the owner: the thread does not run while it is looked at */
    bool failed;      /* the last look was not taken */
    bool insistent;   /* this look has been tried some times already */
    bool chunk_alone; /* the chunks told all at the last look; so they are read alone at the next */
    bool end_shown;   /* the copy of the chunks itself showed which frame was the innermost */
    struct chunk_copies copies;
    struct passing_frame {
        remote_addr address;
        uint64_t instruction;
    } passing;            /* the innermost frame of the last stack that was one in passing */
    remote_addr reach[2]; /* how far the stack reached in some of the last looks, and in those before them */
    unsigned reach_looks;
    unsigned shallow_looks;      /* since a frame outside of the chunks was on the stack */
    struct memory_piece *pieces; /* of one read */
    size_t piece_capacity;
    size_t piece_count; /* of a read ahead, or of the last one */
    bool ahead;         /* they have been read, for the next look */
    uint8_t thread_bytes[THREAD_STATE_MAX_BYTES];
    remote_addr slot_frame; /* what stands in the thread's frame slot */
    /* Frames outside of the chunks that are read along because they were there last time. */
    struct outside_frame {
        struct outside_frame_place {
            remote_addr address;
            size_t size_bytes;   /* the head at the least, and what there is room for of the frame */
            unsigned idle_looks; /* since it was come across */
        } place;
        uint8_t bytes[FRAME_HEAD_MAX_BYTES];
        bool read;
        bool met; /* at this look */
    } * outside;
    size_t outside_count;
    size_t outside_likely;  /* so many of them were come across at the last look: they are read first */
    size_t outside_depth;   /* so many were on the stack when any were */
    size_t outside_planned; /* so many of them were predicted; the others were needed besides */
    size_t outside_along;   /* so many were read along at this attempt */
    size_t outside_capacity;
    bool outside_late; /* those that ran could not be read along when that was last tried */
    /* The frames that run them, read again after them. */
    struct again {
        remote_addr address;
        uint8_t bytes[FRAME_HEAD_MAX_BYTES];
        size_t size_bytes; /* the head at the least, and what there is room for of the frame */
        bool read;
    } * again; /* room for TRACKER_MAX_AGAIN, or NULL as long as there is none */
    size_t again_count;
    unsigned late_reads; /* so many frames outside were read at this attempt, not along with the copy */
    struct callable {
        remote_addr address;
        enum callable_kind kind;
    } callables[TRACKER_CALLABLES]; /* that frames run or seemed to call, each at its hash */
    struct doubt {
        uint32_t key;   /* of a call through frames outside */
        uint32_t path;  /* through them, that was found when it was not known */
        uint32_t times; /* so often in a row */
    } doubts[TRACKER_DOUBTS];
    uint32_t doubt_count; /* so many were ever put there */
    /* The thread runs on while it is copied, and a copy that took longer than most, because the processors contended
     * for its cache lines or strobe was interrupted, can be of two instants. So what such a copy shows must have been
     * seen in quick ones lately, else the thread is looked at again at once. */
    uint64_t usual_ticks; /* how long a copy takes: their median, about */
    unsigned timed_looks; /* so many were timed, up to some tens */
    bool slow;            /* the last one took longer */
    bool quick;           /* it took no longer than half of them */
    uint32_t waits;       /* so often a frame waited still when what it runs had been read */
    uint32_t waits_unchanged;
    struct outside_count {
        uint32_t key; /* of what ran frames outside: the path to it, and its instruction */
        uint32_t seen;
        uint32_t matched;       /* so many of them */
    } lasting[TRACKER_COUNTS],  /* it did so still when they had been read */
        steady[TRACKER_COUNTS]; /* each at the hash of its address: it was what had done so there the time before */
    uint32_t lasting_count;     /* so many were ever put there */
    struct outside_count outside_use; /* of what was predicted outside, so much was come across */
    unsigned useless_looks;           /* so often that was too little */
    uint32_t random;
    size_t shift;                /* so many pieces of the last list were there to let time pass */
    uint32_t learned_looks;      /* in so many looks it was noted what calls what */
    struct seen_calls own_calls; /* in quick ones */
    struct seen_calls *calls;    /* borrowed: set by the owner, who has several threads of the same code; or NULL */
    struct memory_pages *nearby; /* borrowed: set by the owner, for what was read around frames outside at this attempt;
                                  * or NULL: they are read one by one */
};

/* Whether stacks of this runtime can be tracked; those of 3.8 to 3.10 cannot. */
bool stack_tracker_supports(const struct runtime *runtime);

void stack_tracker_init(struct stack_tracker *tracker, struct runtime *runtime, struct code_cache *codes);
void stack_tracker_release(struct stack_tracker *tracker);
/* Forgets what was seen: after the code cache was released. */
void stack_tracker_forget(struct stack_tracker *tracker);
/* The same, but what was found outside of the chunks is read along at the next look still: what is there can be vouched
 * for then. */
void stack_tracker_unlearn(struct stack_tracker *tracker);

/* For who reads for several threads in one call: puts into tracker->pieces, tracker->piece_count of them, what the next
 * look will read first; 0: that is not known. Once they are all read, `ahead` is to be set, and the look to follow. It
 * takes them for a slow copy, and reads by itself what they do not suffice for. */
void stack_tracker_plan(struct stack_tracker *tracker, struct thread_state *thread);

/* Any number. */
uint32_t stack_tracker_random(struct stack_tracker *tracker);

/* Looks. *thread is brought up to date. STATUS_TORN: the stack was at no attempt one that can be vouched for, and
 * frames are those of the last look. */
enum status stack_tracker_look(struct stack_tracker *tracker, struct thread_state *thread,
                               unsigned max_attempts) MUST_USE;

#endif
