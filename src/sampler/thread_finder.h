/* For one reading of a target's list of threads: which of the system's threads the new ones are. Private to
 * target_list.c. */
#ifndef STROBE_SAMPLER_THREAD_FINDER_H
#define STROBE_SAMPLER_THREAD_FINDER_H

#include "sampler/native_ids.h"
#include "sampler/target_parts.h"

/* Begins as {.target = …}. */
struct thread_finder {
    struct target *target;        /* borrowed */
    struct system_threads system; /* read when they are needed first */
    struct native_ids native_ids;
    unsigned readings;
};

void thread_finder_release(struct thread_finder *finder);

/* `name`: what threading says of it, may be NULL. *system is all 0 where it cannot be told. STATUS_NO_PROCESS: the
 * thread has ended since its state was read. */
enum status thread_finder_find(struct thread_finder *finder, const struct thread_state *state,
                               const struct thread_name *name, struct system_thread *system) MUST_USE;

#endif
