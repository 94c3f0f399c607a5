/* The part of a look that memory alone answers: what CPython keeps of its interpreters, threads and stacks. Knows no
 * process, so it looks at a recorded image as at a live target. */
#ifndef STROBE_SAMPLER_LOOK_PYTHON_H
#define STROBE_SAMPLER_LOOK_PYTHON_H

#include "base/memory_meter.h"
#include "cpython/interp.h"
#include "cpython/thread_names.h"
#include "sampler/look.h"

/* Where the system's knowledge of a thread joins CPython's. `describe` is called for each thread before its stack is
 * read; the Python side of *thread is filled in already (a name only if the program gave one). */
struct look_system {
    enum status (*describe)(void *context, const struct interp *interp, const struct thread_state *state,
                            const struct thread_name *name, struct look_thread *thread);
    /* Called before the variables of a stack are read, which are of a later moment than what was read until then. */
    void (*forget_objects)(void *context);
    void *context;
    remote_addr asyncio_debug; /* where asyncio describes itself; 0 when it is not loaded */
};

/* Fills the look's version, interpreters, threads and, when they are asked for, tasks; of the threads each
 * interpreter's oldest first. `budget` is what all of this may cost: what `runtime` is read through should be metered
 * by it, and work that reads nothing is charged to it too. What it does not suffice for is marked STATUS_LIMIT, locals
 * first. `system` may be NULL. */
enum status look_python_take(struct runtime *runtime, const struct look_options *options, struct budget *budget,
                             const struct look_system *system, struct look *look) MUST_USE;

#endif
