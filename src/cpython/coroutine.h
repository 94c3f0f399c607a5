/* Coroutines, generators and async generators (3.14+): their state, their frame, and what they await. */
#ifndef STROBE_CPYTHON_COROUTINE_H
#define STROBE_CPYTHON_COROUTINE_H

#include "cpython/frame.h"
#include "cpython/runtime.h"

enum coroutine_state {
    COROUTINE_CREATED,   /* not begun */
    COROUTINE_SUSPENDED, /* at a yield of its own */
    COROUTINE_AWAITING,  /* at an await or a yield from */
    COROUTINE_EXECUTING, /* its frame is on some thread's stack */
    COROUTINE_FINISHED,  /* it has no frame any more */
};

struct coroutine {
    remote_addr address;
    enum coroutine_state state;
    struct frame frame;       /* nothing of it is valid when the state is COROUTINE_FINISHED */
    remote_addr stackpointer; /* where its value stack ends; 0 while it executes */
};

/* Whether an object has a frame (a coroutine, generator, async generator), and in *through what it stands for when it
 * is one of CPython's own awaitables that only drive one (`asend()` of an async generator, a coroutine's __await__()).
 * Both are false and 0 for any other, say a future's iterator or a coroutine of Cython's. */
enum status coroutine_classify(struct runtime *runtime, remote_addr object, bool *has_frame,
                               remote_addr *through) MUST_USE;

/* Reads the coroutine at `address`, whose type is not checked. In one read, so that what it says is of one instant. */
enum status coroutine_read(struct runtime *runtime, remote_addr address, struct coroutine *coroutine) MUST_USE;

/* What a coroutine in COROUTINE_AWAITING awaits: any object, 0 when it cannot be told. */
enum status coroutine_awaited(struct runtime *runtime, const struct coroutine *coroutine,
                              remote_addr *awaited) MUST_USE;

#endif
