/* Threads that stand still while they are looked at, most likely: their stacks are read in one call. Private to
 * target.c.
 *
 * Between what the system says of a thread and the copy of its stack the others of its group are asked. So a group is
 * small, and the holder of the GIL is read along, last: who holds it by then does not stand still, and is looked at
 * anew, alone. */
#ifndef STROBE_SAMPLER_THREAD_GROUP_H
#define STROBE_SAMPLER_THREAD_GROUP_H

#include "sampler/target_thread.h"

enum { THREAD_GROUP_SIZE = 32 };

struct thread_group {
    struct target_thread *threads[THREAD_GROUP_SIZE];
    size_t count;
    struct memory_piece *pieces;
    size_t piece_count;
    size_t piece_capacity;
    remote_addr holder;
};

void thread_group_release(struct thread_group *group);
/* 3.15+: who of the threads says that it waits for the GIL, in one call: at most a group of them, as this is to be of
 * nearly the same instant as their stacks. */
enum status thread_group_read_requests(struct thread_group *group, struct target_thread *const *threads, size_t count,
                                       const struct thread_look *look) MUST_USE;
/* One whose look has been begun. There must be room; all threads of a group are of one interpreter. */
void thread_group_add(struct thread_group *group, struct target_thread *thread);
/* Takes the samples of all that were added, and empties the group. *gone: one of them has ended. */
enum status thread_group_finish(struct thread_group *group, const struct thread_look *look, bool *gone) MUST_USE;

#endif
