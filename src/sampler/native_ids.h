/* Which of the system's threads a Python thread is. */
#ifndef STROBE_SAMPLER_NATIVE_IDS_H
#define STROBE_SAMPLER_NATIVE_IDS_H

#include "base/map.h"
#include "cpython/thread_names.h"
#include "process/process.h"

struct native_ids {
    struct process *process;             /* borrowed */
    const struct system_threads *system; /* borrowed */
    struct map by_own_tid;               /* -> index in system */
    bool *claimed;
    /* Where in the C library's struct pthread the thread id stands; learned from the first that was asked for.
     * SIZE_MAX: unknown. */
    size_t pthread_offset;
};

enum status native_ids_init(struct native_ids *ids, struct process *process,
                            const struct system_threads *system) MUST_USE;
void native_ids_release(struct native_ids *ids);

/* The system's thread behind a thread state: by the native id that CPython keeps (3.11+), by that of the Thread object
 * (`name`, may be NULL), else by the C library's own record. NULL when it cannot be told. */
const struct system_thread *native_ids_claim(struct native_ids *ids, const struct thread_state *state,
                                             const struct thread_name *name);
bool native_ids_is_claimed(const struct native_ids *ids, size_t index);

#endif
