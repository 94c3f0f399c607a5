/* Finding the stack in copies of the data stack's chunks. Private to stack_tracker.c. */
#ifndef STROBE_UNWIND_CHUNK_WALK_H
#define STROBE_UNWIND_CHUNK_WALK_H

#include "unwind/stack_tracker.h"

/* Walks the copies upwards from frame `same`, the first that may have changed. On STATUS_OK tracker->stack is the
 * stack. Where the copy leaves open what runs, the thread state tells: it is read now unless it was read along.
 * `may_retry`: rather STATUS_TORN than something that a slow copy shows and that was not seen before.
 * STATUS_TORN: the copy cannot be vouched for; the frames below `same` are still right. */
enum status chunk_walk(struct stack_tracker *tracker, struct thread_state *thread, bool thread_known, bool may_retry,
                       size_t same) MUST_USE;

#endif
