#include "sampler/thread_finder.h"

/* The system's threads may be read again once, for those that were born meanwhile. */
enum { MAX_SYSTEM_READINGS = 2 };

/* Where the process has ids of its own: of threads that are known they are, too. */
static enum status read_own_tids(struct thread_finder *finder) {
    const struct target *target = finder->target;
    struct map own_tids = {0};
    enum status status = STATUS_OK;
    for (size_t i = 0; i < target->thread_count && status == STATUS_OK; i++) {
        const struct target_thread *thread = target->threads[i];
        if (thread->watch != NULL && !target_thread_has_ended(thread))
            status = map_set(&own_tids, (uint64_t)thread->tid, thread->sampled.native_id);
    }
    for (size_t i = 0; i < finder->system.count && status == STATUS_OK; i++) {
        struct system_thread *system = &finder->system.items[i];
        uint64_t own_tid = 0;
        if (map_get(&own_tids, (uint64_t)system->tid, &own_tid))
            system->own_tid = (pid_t)own_tid;
        else
            status = process_read_thread(target->process, system->tid, system);
        if (status == STATUS_NO_PROCESS)
            status = STATUS_OK;
    }
    map_release(&own_tids);
    return status;
}

static enum status read_system_threads(struct thread_finder *finder) {
    struct target *target = finder->target;
    struct error ignored = {0};
    native_ids_release(&finder->native_ids);
    system_threads_release(&finder->system);
    finder->readings++;
    TRY(process_list_threads(target->process, &finder->system, &ignored));
    if (finder->system.items[0].own_tid == 0)
        TRY(read_own_tids(finder));
    return native_ids_init(&finder->native_ids, target->process, &finder->system);
}

/* Among all threads of the process. They may have been read before it was born. STATUS_NO_PROCESS when it cannot be
 * told, or it has ended. */
static enum status search_system_thread(struct thread_finder *finder, const struct thread_state *state,
                                        const struct thread_name *name, struct system_thread *system) {
    const struct system_thread *found = NULL;
    /* A reading that failed, as of a process that is ending, has left none. */
    if (finder->native_ids.system != NULL)
        found = native_ids_claim(&finder->native_ids, state, name);
    if (found == NULL && finder->readings < MAX_SYSTEM_READINGS) {
        TRY(read_system_threads(finder));
        found = native_ids_claim(&finder->native_ids, state, name);
    }
    return found != NULL ? process_read_thread(finder->target->process, found->tid, system) : STATUS_NO_PROCESS;
}

static bool knows_main_thread(const struct target *target) {
    for (size_t i = 0; i < target->thread_count; i++)
        if (target_is_main_thread(target, target->threads[i]->sampled.native_id))
            return true;
    return false;
}

/* Whether the thread has left Python since its state was read. The state of one that did not end in Python is left
 * behind, and has no frame either. */
static bool has_left(struct target *target, const struct thread_state *state) {
    struct thread_state now;
    return thread_state_read(&target->runtime, state->address, &now) != STATUS_OK || now.interp != state->interp ||
           now.thread_id != state->thread_id || now.frame == 0;
}

/* Only the thread that a forked child begins with can have an id that is none of the child's. */
enum status thread_finder_find(struct thread_finder *finder, const struct thread_state *state,
                               const struct thread_name *name, struct system_thread *system) {
    enum status status = process_read_own_thread(finder->target->process, state->native_thread_id, system);
    bool is_main = target_is_main_thread(finder->target, state->native_thread_id);
    if (status == STATUS_NO_PROCESS && (is_main || knows_main_thread(finder->target)))
        return status;
    if (status == STATUS_NO_PROCESS || status == STATUS_NOT_FOUND)
        status = search_system_thread(finder, state, name, system);
    if (status != STATUS_NO_PROCESS || has_left(finder->target, state))
        return status;
    *system = (struct system_thread){0};
    return STATUS_OK;
}

void thread_finder_release(struct thread_finder *finder) {
    native_ids_release(&finder->native_ids);
    system_threads_release(&finder->system);
}
