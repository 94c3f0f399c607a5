/* One thread's Python stack, read without stopping it and checked against itself. */
#ifndef STROBE_UNWIND_PYTHON_STACK_H
#define STROBE_UNWIND_PYTHON_STACK_H

#include "base/memory_meter.h"
#include "cpython/code.h"
#include "cpython/frame.h"
#include "cpython/interp.h"
#include "unwind/stack_image.h"
#include "unwind/stack_tracker.h"

/* A stack deeper than this is cut there, and says so. */
enum { MAX_STACK_FRAMES = 1 << 20 };

/* One Python call. When status is not STATUS_OK the frame could not be read; then only frame.address is meaningful. */
struct stack_frame {
    enum status status;
    struct frame frame;
    const struct code *code;   /* owned by the reader's code cache */
    int32_t instruction_bytes; /* offset into the bytecode; -1: it has not begun */
    bool called_from_c;        /* C stands between it and its caller (known from 3.12 on) */
    struct source_position position;
};

/* Innermost first. Boundary frames, shims and frames that are still being set up are not in it. */
struct python_stack {
    struct stack_frame *frames;
    size_t count;
    size_t capacity;
    bool cut;        /* deeper than MAX_STACK_FRAMES */
    bool consistent; /* the thread's innermost frame was the same before and after, and the chain ended where it must */
    unsigned attempts;
};

/* What is kept from one stack to the next. Not thread-safe. */
struct stack_reader {
    struct runtime *runtime;  /* borrowed */
    struct code_cache *codes; /* borrowed */
    struct budget *budget;    /* borrowed: what work that reads nothing is charged to. NULL: no limit */
    struct stack_image image;
    struct stack_tracker tracker; /* 3.11+ */
    struct frame_list {
        struct frame *items;
        size_t count;
        size_t capacity;
    } chain;
};

void stack_reader_init(struct stack_reader *reader, struct runtime *runtime, struct code_cache *codes);
/* From now on what the reader's work costs is charged to the budget (borrowed, may be NULL). What it reads of the
 * target is for whoever set up the runtime to meter; this is for what it does with copies. */
void stack_reader_limit(struct stack_reader *reader, struct budget *budget);
void stack_reader_release(struct stack_reader *reader);

/* Reads the stack of the thread state at `thread->address`, at most max_attempts times until it is consistent; the last
 * attempt is kept even if it is not. *thread is brought up to date. Fails only when the thread state itself cannot be
 * read or strobe has no memory. The stack's storage is reused; release it with python_stack_release. */
enum status python_stack_read(struct stack_reader *reader, struct thread_state *thread, unsigned max_attempts,
                              struct python_stack *stack) MUST_USE;
void python_stack_release(struct python_stack *stack);

/* Fills status, code and position of a frame whose frame is filled; *shown: whether it is one to show. Fails only when
 * strobe has no memory. For frames that are on no thread's stack, as those of suspended coroutines. */
enum status python_stack_resolve(struct stack_reader *reader, struct stack_frame *frame, bool *shown) MUST_USE;

/* After python_stack_read: the memory of that same look, for reading the frames' locals. */
struct memory *stack_reader_memory(struct stack_reader *reader);

#endif
