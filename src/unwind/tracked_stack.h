/* What a tracker of one thread's Python stack gives: the stack, and how much of it is as it was. */
#ifndef STROBE_UNWIND_TRACKED_STACK_H
#define STROBE_UNWIND_TRACKED_STACK_H

#include "cpython/code.h"

struct tracked_frame {
    remote_addr address;
    remote_addr end;     /* where the next frame of the chunk begins; 0 outside of the chunks, and before 3.11 */
    size_t copied_end;   /* its place in the tracker's copies */
    uint64_t executable; /* 3.11+: as it stands in the frame, tags and all */
    uint64_t instruction;
    const struct code *code;   /* NULL for a boundary frame */
    int32_t instruction_bytes; /* -1: it has not begun */
    bool shown;                /* false for boundary frames, shims and frames that are being set up */
    uint32_t mark;             /* the caller's, kept as long as the frame is unchanged */
    uint32_t call;             /* 3.11+: hash of the functions and calls that led to this function (seen_calls.h) */
    uint32_t path;             /* 3.11+: the same with the place in the caller */
    bool assumed;              /* 3.11+: it is not as the copy has it */
};

struct tracked_stack {
    struct tracked_frame *frames; /* outermost first */
    size_t count;
    size_t unchanged; /* so many of them, from the outermost on, are as they were at the last look that was taken */
    size_t capacity;
};

/* Puts a frame at `index`, at most one behind those that were put so far; `count` stays. */
enum status tracked_stack_put(struct tracked_stack *stack, size_t index, const struct tracked_frame *frame) MUST_USE;
void tracked_stack_release(struct tracked_stack *stack);

#endif
