/* Threads that are Python's only while Python calls them or they call Python: foreign threads' callbacks make a state
 * for each call and delete it after (PyGILState_Ensure and PyGILState_Release, Python/pystate.c). Between their calls
 * they rest, so that the next one is the same thread's, and finding out whose it is costs nothing. */
#include "base/array.h"
#include "sampler/target_parts.h"

static bool lives(const struct target_thread *thread) {
    return thread->watch != NULL && !target_thread_has_ended(thread);
}

bool target_may_rest(const struct target_thread *thread) {
    return thread->sharer == NULL && lives(thread);
}

enum status target_rest_thread(struct target *target, size_t index) {
    struct target_thread *thread = target->threads[index];
    TRY(array_reserve((void **)&target->resting, &target->resting_capacity, target->resting_count + 1,
                      sizeof(struct target_thread *)));
    target->resting[target->resting_count++] = thread;
    target->threads[index] = target->threads[--target->thread_count];
    return STATUS_OK;
}

/* Up to 3.10 a state has no native id; who has the same of Python's, the address of its stack, and lives, is the same.
 */
static bool is_of(const struct target_thread *thread, const struct thread_state *state, const struct interp *interp) {
    return target_thread_has_ids_of(thread, state) && thread->sampled.interpreter == interp->id && lives(thread);
}

/* Whose state another has followed since the list was read last. */
static struct target_thread *find_unlisted(const struct target *target, const struct thread_state *state,
                                           const struct interp *interp) {
    for (size_t i = 0; i < target->thread_count; i++) {
        struct target_thread *thread = target->threads[i];
        if (!thread->listed && thread->sharer == NULL && is_of(thread, state, interp))
            return thread;
    }
    return NULL;
}

static struct target_thread *take_resting(struct target *target, const struct thread_state *state,
                                          const struct interp *interp) {
    for (size_t i = 0; i < target->resting_count; i++) {
        struct target_thread *thread = target->resting[i];
        if (!is_of(thread, state, interp))
            continue;
        target->resting[i] = target->resting[--target->resting_count];
        target->threads[target->thread_count++] = thread;
        return thread;
    }
    return NULL;
}

enum status target_wake_thread(struct target *target, const struct thread_state *state, const struct interp *interp,
                               struct target_thread **thread) {
    TRY(array_reserve((void **)&target->threads, &target->thread_capacity, target->thread_count + 1,
                      sizeof(struct target_thread *)));
    *thread = find_unlisted(target, state, interp);
    if (*thread != NULL && !(*thread)->missing)
        TRY(target_thread_rest(*thread, target->sink, &target->counters));
    if (*thread == NULL)
        *thread = take_resting(target, state, interp);
    if (*thread != NULL)
        target_thread_resume(*thread, state, target->options.mode, target->surveyed_ns);
    return STATUS_OK;
}

enum status target_end_resting(struct target *target, bool all) {
    enum status status = STATUS_OK;
    for (size_t i = target->resting_count; i-- > 0;) {
        struct target_thread *thread = target->resting[i];
        if (!all && lives(thread))
            continue;
        target->resting[i] = target->resting[--target->resting_count];
        enum status ended = target_finish_thread(target, thread);
        status = status == STATUS_OK ? ended : status;
    }
    return status;
}
