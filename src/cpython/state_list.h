/* CPython's lists of interpreters and of threads, read from end to end before anything else is: both change while the
 * program runs, and who reads a stack between two steps finds that the next step leads nowhere. */
#ifndef STROBE_CPYTHON_STATE_LIST_H
#define STROBE_CPYTHON_STATE_LIST_H

#include "cpython/interp.h"

struct state_list {
    remote_addr *items; /* newest first */
    size_t count;
    size_t capacity;
    bool complete; /* false: it broke off at every attempt; what is in it is where it led furthest */
};

/* The PyInterpreterState structs. What they point to is not checked. The list may be used again; its storage is kept
 * until state_list_release. */
enum status state_list_read_interps(struct runtime *runtime, struct state_list *list) MUST_USE;
/* The PyThreadState structs of an interpreter. One may have ended, and another have its place, when it is looked at. */
enum status state_list_read_threads(struct runtime *runtime, remote_addr interp, struct state_list *list) MUST_USE;
/* Whether a thread state that was found is still in its list: one that has ended may look as it did when it lived, or
 * like anything. */
bool state_list_still_has_thread(struct runtime *runtime, remote_addr interp, remote_addr thread);
void state_list_release(struct state_list *list);

#endif
