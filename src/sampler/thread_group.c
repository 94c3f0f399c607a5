#include "sampler/thread_group.h"

#include "base/array.h"

#include <stdlib.h>
#include <string.h>

void thread_group_release(struct thread_group *group) {
    free(group->pieces);
    *group = (struct thread_group){0};
}

void thread_group_add(struct thread_group *group, struct target_thread *thread) {
    group->threads[group->count++] = thread;
}

enum status thread_group_read_requests(struct thread_group *group, struct target_thread *const *threads, size_t count,
                                       const struct thread_look *look) {
    layout_offset offset = look->runtime->layout.thread.gil_requested;
    size_t asked = 0;
    if (!layout_has(offset))
        return STATUS_OK;
    TRY(array_reserve((void **)&group->pieces, &group->piece_capacity, count, sizeof group->pieces[0]));
    for (size_t i = 0; i < count; i++) {
        struct target_thread *thread = threads[i];
        thread->gil_request = 0;
        if (target_thread_is_looked_at(thread) && target_thread_may_contend(thread, look))
            group->pieces[asked++] =
                (struct memory_piece){thread->state.address + offset, &thread->gil_request, sizeof thread->gil_request};
    }
    /* Without an answer each asks the system. */
    if (asked == 0 || memory_read_pieces(look->runtime->live, group->pieces, asked) == STATUS_OK)
        return STATUS_OK;
    for (size_t i = 0; i < count; i++)
        threads[i]->gil_request = 0;
    return STATUS_OK;
}

static enum status list_pieces(struct thread_group *group, const struct thread_look *look) {
    size_t count = 1;
    for (size_t i = 0; i < group->count; i++) {
        stack_tracker_plan(&group->threads[i]->tracker, &group->threads[i]->state);
        count += group->threads[i]->tracker.piece_count;
    }
    TRY(array_reserve((void **)&group->pieces, &group->piece_capacity, count, sizeof group->pieces[0]));
    group->piece_count = 0;
    for (size_t i = 0; i < group->count; i++) {
        const struct stack_tracker *tracker = &group->threads[i]->tracker;
        if (tracker->piece_count > 0)
            memcpy(group->pieces + group->piece_count, tracker->pieces, tracker->piece_count * sizeof group->pieces[0]);
        group->piece_count += tracker->piece_count;
    }
    group->holder = 0;
    group->pieces[group->piece_count++] =
        (struct memory_piece){interp_holder_slot(look->runtime, look->interp), &group->holder, sizeof group->holder};
    return STATUS_OK;
}

/* When a part cannot be read, memory was given back meanwhile: then each reads for itself. */
static enum status read_ahead(struct thread_group *group, const struct thread_look *look) {
    TRY(list_pieces(group, look));
    if (group->piece_count > 1 &&
        memory_read_pieces(look->runtime->live, group->pieces, group->piece_count) != STATUS_OK)
        return STATUS_OK;
    for (size_t i = 0; i < group->count; i++)
        group->threads[i]->tracker.ahead = group->threads[i]->tracker.piece_count > 0;
    return STATUS_OK;
}

static enum status finish_thread(const struct thread_group *group, struct target_thread *thread,
                                 const struct thread_look *look) {
    bool moved_on = thread->tracker.ahead && group->holder == thread->state.address;
    if (!moved_on)
        return target_thread_finish_look(thread, look);
    thread->tracker.ahead = false;
    return target_thread_look_again(thread, look);
}

enum status thread_group_finish(struct thread_group *group, const struct thread_look *look, bool *gone) {
    enum status status = group->count > 1 ? read_ahead(group, look) : STATUS_OK;
    for (size_t i = 0; i < group->count && status == STATUS_OK; i++) {
        status = finish_thread(group, group->threads[i], look);
        if (status != STATUS_NO_PROCESS)
            continue;
        *gone = group->threads[i]->gone = true;
        status = STATUS_OK;
    }
    group->count = 0;
    return status;
}
