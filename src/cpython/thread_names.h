/* The names that the program gave its threads, from threading._active. */
#ifndef STROBE_CPYTHON_THREAD_NAMES_H
#define STROBE_CPYTHON_THREAD_NAMES_H

#include "base/arena.h"
#include "base/map.h"
#include "cpython/interp.h"

struct thread_name {
    uint64_t thread_id; /* threading.get_ident() */
    uint64_t native_id; /* Thread.native_id, 0 when the object does not say */
    const char *name;   /* UTF-8, in the arena */
};

struct thread_names {
    struct thread_name *items; /* by thread id */
    size_t count;
};

/* Reads the names of one interpreter's threads, only of those whose ids are keys of `wanted` where it is not NULL. None
 * is a valid answer: a program need not have imported threading. Entries that cannot be read are left out. The result
 * lives in the arena. */
enum status thread_names_read(struct runtime *runtime, const struct interp *interp, const struct map *wanted,
                              struct arena *arena, struct thread_names *names) MUST_USE;

/* The entry of a thread, or NULL. */
const struct thread_name *thread_names_find(const struct thread_names *names, uint64_t thread_id);

/* Whether that entry is the thread's with this native id: thread ids are used again at once, so it may be one's that
 * had the id before or has it since. True where one of the two native ids is not known (0). Not for the main thread,
 * whose id is no other's: in a forked child, threading keeps the native id of the thread that forked. */
bool thread_name_is_of(const struct thread_name *name, uint64_t native_id);

#endif
