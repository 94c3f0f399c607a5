/* Interpreters and their threads, as CPython keeps them. */
#ifndef STROBE_CPYTHON_INTERP_H
#define STROBE_CPYTHON_INTERP_H

#include "cpython/runtime.h"

#include <stdbool.h>

/* More than this many is a damaged list. */
enum { MAX_INTERPRETERS = 10000, MAX_THREADS = 1000000 };

struct interp {
    remote_addr address;
    int64_t id;
    remote_addr next;
    remote_addr threads_head;
    uint64_t births;          /* room for who asks interp_read_births() */
    remote_addr modules;      /* the dict sys.modules */
    remote_addr last_modules; /* room for who reads it again and again: the last that there was */
    remote_addr sysdict;
    /* The GIL this interpreter uses; all zero in a free-threaded build whose GIL is off. */
    remote_addr gil;
    remote_addr gil_holder;      /* the thread state that holds it, 0 when nobody does */
    remote_addr gil_last_holder; /* that holds it or did last */
    bool gil_enabled;
    bool collecting;      /* a garbage collection is running */
    remote_addr gc_frame; /* 3.15+: the frame in which it runs */
};

enum status interp_first(struct runtime *runtime, remote_addr *address) MUST_USE;
enum status interp_read(struct runtime *runtime, remote_addr address, struct interp *interp) MUST_USE;

/* How many thread states the interpreter at `address` has had: changes when one is made, also where that has the
 * address of one that is gone. */
enum status interp_read_births(struct runtime *runtime, remote_addr address, uint64_t *births) MUST_USE;

/* What shows whether the GIL has gone from one thread to another. */
struct gil_turns {
    remote_addr last_holder;
    uint64_t switches; /* how often that happened */
};

/* Only where there is a GIL. */
enum status interp_read_turns(struct runtime *runtime, const struct interp *interp, struct gil_turns *turns) MUST_USE;
/* Where the GIL's holder, or its last, stands. Only where there is a GIL. */
remote_addr interp_holder_slot(const struct runtime *runtime, const struct interp *interp);

/* A PyThreadState. */
struct thread_state {
    remote_addr address;
    remote_addr next;
    remote_addr interp;
    /* The innermost frame: a PyFrameObject up to 3.10, a _PyInterpreterFrame after; 0 when no Python code runs. */
    remote_addr frame;
    /* Where that pointer itself stands, to look again later. */
    remote_addr frame_slot;
    remote_addr datastack_chunk; /* 3.11+ */
    remote_addr datastack_top;   /* 3.11+ */
    remote_addr datastack_limit; /* 3.11+: the end of the chunk */
    uint64_t thread_id;          /* threading.get_ident() */
    uint64_t native_thread_id;   /* 3.11+, else 0 */
    bool gil_requested;          /* 3.15+: it waits for the GIL */
};

/* How many bytes of a PyThreadState thread_state_decode needs, from its beginning. More than THREAD_STATE_MAX_BYTES are
 * never read. */
enum { THREAD_STATE_MAX_BYTES = 1024 };
size_t thread_state_span(const struct layout *layout);

/* From a copy of these bytes. In 3.11 and 3.12 `frame` is left 0: it stands at frame_slot. */
void thread_state_decode(const struct layout *layout, remote_addr address, const uint8_t *bytes,
                         struct thread_state *thread);

enum status thread_state_read(struct runtime *runtime, remote_addr address, struct thread_state *thread) MUST_USE;

#endif
