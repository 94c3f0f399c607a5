/* What a tracker of one thread's Python stack gives: the stack, and how much of it is as it was. */
#ifndef STROBE_UNWIND_TRACKED_STACK_H
#define STROBE_UNWIND_TRACKED_STACK_H

#include "cpython/code.h"

struct tracked_frame {
    remote_addr address;
    remote_addr end;   /* where the next frame of the chunk begins; 0 outside of the chunks, and before 3.11 */
    size_t copied_end; /* 3.11+: it is as it was where the tracker's copies are up to there; SIZE_MAX: not even then */
    uint64_t executable; /* 3.11+: as it stands in the frame, tags and all */
    uint64_t instruction;
    const struct code *code;   /* NULL for a boundary frame */
    int32_t instruction_bytes; /* -1: it has not begun */
    bool shown;                /* false for boundary frames, shims and frames that are being set up */
    uint32_t mark;             /* the caller's, kept as long as the frame is remembered */
    uint32_t call;             /* 3.11+: hash of the functions and calls that led to this function (seen_calls.h) */
    uint32_t path;             /* 3.11+: the same with the place in the caller */
    bool assumed;              /* 3.11+: it is not as the copy has it */
};

enum { TRACKED_MAX_ASIDE = 6 };

/* A stack is remembered when another is looked at. What the two share, from the outermost frame on, is not looked at
 * again. Where a thread goes up and down in the same deep stack, a shallow stack differs from the deep one before it in
 * its innermost frame only: then the deep one is what is remembered on, and its frame in that place is put aside. */
struct tracked_stack {
    struct tracked_frame *frames; /* outermost first */
    size_t count;
    size_t unchanged; /* so many of them, from the outermost on, are of the stack that is remembered */
    bool passing;     /* that one is remembered on, and nothing of the other frames of this one */
    size_t capacity;
    /* Private. */
    size_t known; /* so many frames are remembered; those behind `count` are in their places */
    struct aside_frame {
        size_t index;
        struct tracked_frame frame;
    } aside[TRACKED_MAX_ASIDE]; /* of those that are known */
    size_t aside_count;
};

/* Puts a frame at `index`, at most one behind those that were put so far; `count` stays. */
enum status tracked_stack_put(struct tracked_stack *stack, size_t index, const struct tracked_frame *frame) MUST_USE;
/* Before a frame is changed where it is. */
void tracked_stack_touch(struct tracked_stack *stack, size_t index);
/* The stack that is remembered is in its place again; `count` stays. */
void tracked_stack_restore(struct tracked_stack *stack);
/* From now on, the first `known` frames of this stack are remembered. */
void tracked_stack_remember(struct tracked_stack *stack, size_t known);
/* Remembers no more than `known` frames. */
void tracked_stack_forget(struct tracked_stack *stack, size_t known);
void tracked_stack_release(struct tracked_stack *stack);

#endif
