/* The tasks of asyncio in a look. Private to this room. */
#ifndef STROBE_SAMPLER_LOOK_ASYNC_H
#define STROBE_SAMPLER_LOOK_ASYNC_H

#include "sampler/look.h"
#include "unwind/python_stack.h"

/* Puts a frame into the look. */
typedef enum status look_fill_fn(void *context, const struct stack_frame *from, struct look_frame *to);

struct look_async {
    remote_addr table; /* with which asyncio describes itself; 0: it is not loaded */
    struct stack_reader *stacks;
    struct look *look; /* with its threads, whose frames running tasks share */
    look_fill_fn *fill;
    void *context; /* for `fill` */
};

/* Fills look->tasks. Fails only when strobe has no memory or the process is gone; an asyncio that cannot be read is
 * left out and look->tasks_error says why. */
enum status look_async_read(const struct look_async *async) MUST_USE;

#endif
