/* Several thread states of one system thread: one that runs code of another interpreter has a state there, too, and the
 * one that it came from waits for its return. What the system tells of the thread is of the one that it runs for. */
#include "sampler/target_parts.h"

/* Whose state bears the ids of the thread that runs it. Before, an interpreter's first state bears those of the thread
 * that made it, whoever runs it (Modules/_xxsubinterpretersmodule.c 3.12); threads' own are right there, too. */
static const uint32_t RUNNERS_IDS_VERSION = 0x030d0000;

static bool has_runners_ids(const struct target *target) {
    return target->sampled.version >= RUNNERS_IDS_VERSION;
}

static struct target_thread *current_of(struct target_thread *thread) {
    while (thread->stands_by)
        thread = thread->sharer;
    return thread;
}

/* From the ring's current one to another. */
static enum status make_current(struct target *target, struct target_thread *thread) {
    struct target_thread *current = current_of(thread);
    if (current == thread)
        return STATUS_OK;
    TRY(target_thread_end_sleep(current, target->sink, &target->counters));
    target_thread_hand_over(current, thread);
    current->stands_by = true;
    thread->stands_by = false;
    return STATUS_OK;
}

void target_leave_sharers(struct target_thread *thread) {
    struct target_thread *before = thread->sharer;
    if (before == NULL)
        return;
    if (!thread->stands_by) {
        target_thread_hand_over(thread, thread->sharer);
        thread->sharer->stands_by = false;
    }
    while (before->sharer != thread)
        before = before->sharer;
    before->sharer = thread->sharer != before ? thread->sharer : NULL;
    thread->sharer = NULL;
}

/* In the list the newest interpreters are first. */
static size_t interp_index(const struct target *target, const struct target_thread *thread) {
    size_t index = 0;
    while (index < target->interp_count && target->interps[index].address != thread->interp)
        index++;
    return index;
}

static bool is_newer(const struct target *target, const struct target_thread *thread,
                     const struct target_thread *other) {
    return interp_index(target, thread) < interp_index(target, other);
}

/* Most likely it is the newest interpreter that the thread is in; where another may be in that, the one that it is of.
 */
static enum status join(struct target *target, struct target_thread *thread, struct target_thread *other) {
    bool wanted = is_newer(target, thread, current_of(other)) == has_runners_ids(target);
    thread->sharer = other->sharer != NULL ? other->sharer : other;
    other->sharer = thread;
    thread->stands_by = true;
    return wanted ? make_current(target, thread) : STATUS_OK;
}

enum status target_find_sharers(struct target *target) {
    struct map by_tid = {0};
    enum status status = STATUS_OK;
    target->shared = false;
    if (target->interp_count < 2)
        return STATUS_OK;
    for (size_t i = 0; i < target->thread_count && status == STATUS_OK; i++) {
        struct target_thread *thread = target->threads[i];
        uint64_t known = 0;
        if (thread->tid == 0 || thread->gone)
            continue;
        bool is_other = map_get(&by_tid, (uint64_t)thread->tid, &known);
        if (!is_other)
            status = map_set(&by_tid, (uint64_t)thread->tid, (uint64_t)(uintptr_t)thread);
        else if (thread->sharer == NULL)
            status = join(target, thread, (struct target_thread *)(uintptr_t)known);
        target->shared |= is_other;
    }
    map_release(&by_tid);
    return status;
}

static bool holds_gil(const struct target *target, const struct target_thread *thread) {
    size_t index = interp_index(target, thread);
    return index < target->interp_count && target->interps[index].gil_holder == thread->state.address;
}

/* A thread has begun in the oldest of the interpreters that it is in. */
static bool is_oldest(const struct target *target, const struct target_thread *thread) {
    const struct target_thread *other = thread->sharer;
    while (other != thread && is_newer(target, other, thread))
        other = other->sharer;
    return other == thread;
}

/* Stopped threads were asked before. */
static bool is_running(const struct target *target, struct target_thread *thread) {
    enum thread_run_state state = current_of(thread)->run;
    if (!target->options.blocking && thread->watch != NULL && thread_watch_state(thread->watch, &state) != STATUS_OK)
        return false;
    return thread->watch == NULL || state == THREAD_RUNNING;
}

/* Whether the system's thread is the one that runs it: one that sleeps while the state that bears its ids has the GIL
 * only made the interpreter. */
static bool is_run_by_own(const struct target *target, struct target_thread *thread) {
    if (has_runners_ids(target) || is_oldest(target, thread))
        return true;
    struct target_thread *current = current_of(thread);
    bool is_elsewhere = holds_gil(target, current) && is_newer(target, thread, current);
    return !is_elsewhere && is_running(target, thread);
}

/* Who holds a GIL is who its thread runs for, and stays so while it waits without. */
enum status target_settle_sharers(struct target *target) {
    for (size_t i = 0; target->shared && i < target->thread_count; i++) {
        struct target_thread *thread = target->threads[i];
        if (thread->stands_by && holds_gil(target, thread) && is_run_by_own(target, thread))
            TRY(make_current(target, thread));
    }
    return STATUS_OK;
}
