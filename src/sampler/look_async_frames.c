/* What the tasks run or await: their frames. */
#include "sampler/look_async_parts.h"

#include "base/array.h"

#include <stdlib.h>

/* Coroutines that await each other in one task. */
enum { MAX_CHAIN = 1 << 16 };

/* Gives the running tasks their part of these frames of one thread: from the task's coroutine inwards, up to where
 * another task begins (one that was started eagerly). */
static void share_frames(struct look_async_gatherer *gatherer, const struct look_frame *frames, size_t count,
                         bool consistent) {
    size_t first = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t place = 0;
        if (!map_get(&gatherer->by_frame, frames[i].address, &place))
            continue;
        struct look_async_item *item = &gatherer->items[place];
        item->frames = frames + first;
        item->frame_count = i + 1 - first;
        item->frames_consistent = consistent;
        first = i + 1;
    }
}

static enum status find_running(struct look_async_gatherer *gatherer) {
    const struct look *look = gatherer->async->look;
    for (size_t i = 0; i < gatherer->count; i++)
        if (gatherer->items[i].task.coro != 0)
            TRY(map_set(&gatherer->by_frame, gatherer->items[i].task.coro + gatherer->runtime->layout.gen.gi_iframe,
                        i));
    for (size_t i = 0; i < look->thread_count; i++)
        share_frames(gatherer, look->threads[i].frames, look->threads[i].frame_count, look->threads[i].consistent);
    return STATUS_OK;
}

static enum status append_coroutine(struct look_async_gatherer *gatherer, const struct coroutine *coroutine) {
    TRY(array_reserve((void **)&gatherer->chain, &gatherer->chain_capacity, gatherer->chain_count + 1,
                      sizeof gatherer->chain[0]));
    gatherer->chain[gatherer->chain_count++] = *coroutine;
    return STATUS_OK;
}

/* From the task's coroutine to the one that awaits what is no coroutine. */
static enum status follow_chain(struct look_async_gatherer *gatherer, remote_addr address) {
    remote_addr earlier = 0;
    gatherer->chain_count = 0;
    for (size_t step = 1; address != 0; step++) {
        bool has_frame = false;
        remote_addr through = 0;
        if (address == earlier)
            return STATUS_TORN; /* a ring: whatever it is, it is no chain of calls */
        if ((step & (step - 1)) == 0)
            earlier = address;
        if (step > MAX_CHAIN)
            return STATUS_LIMIT;
        TRY(coroutine_classify(gatherer->runtime, address, &has_frame, &through));
        if (!has_frame) {
            address = through;
            continue;
        }
        struct coroutine coroutine;
        TRY(coroutine_read(gatherer->runtime, address, &coroutine));
        if (coroutine.state == COROUTINE_EXECUTING && gatherer->chain_count > 0)
            return STATUS_TORN;
        TRY(append_coroutine(gatherer, &coroutine));
        if (coroutine.state != COROUTINE_AWAITING)
            return STATUS_OK;
        TRY(coroutine_awaited(gatherer->runtime, &coroutine, &address));
    }
    return STATUS_OK;
}

/* Whether every coroutine of the chain still stands where it stood when its turn came. */
static enum status chain_is_unchanged(struct look_async_gatherer *gatherer, bool *unchanged) {
    *unchanged = false;
    for (size_t i = 0; i < gatherer->chain_count; i++) {
        const struct coroutine *known = &gatherer->chain[i];
        struct coroutine again;
        TRY(coroutine_read(gatherer->runtime, known->address, &again));
        if (again.state != known->state || again.frame.instruction != known->frame.instruction ||
            again.frame.code != known->frame.code || again.stackpointer != known->stackpointer)
            return STATUS_OK;
    }
    *unchanged = true;
    return STATUS_OK;
}

static enum status fill_chain(struct look_async_gatherer *gatherer, struct look_task *task) {
    size_t count = gatherer->chain_count;
    if (count > 0 && gatherer->chain[count - 1].state == COROUTINE_FINISHED)
        count--;
    if (count > gatherer->frames_left) {
        task->cut = true;
        count = gatherer->frames_left;
    }
    struct look_frame *frames = arena_take(&gatherer->async->look->arena, count * sizeof frames[0] + 1);
    if (frames == NULL)
        return STATUS_FAILED;
    gatherer->frames_left -= count;
    for (size_t i = count; i-- > 0;) {
        struct stack_frame frame = {.frame = gatherer->chain[i].frame};
        bool shown = true;
        TRY(python_stack_resolve(gatherer->async->stacks, &frame, &shown));
        TRY(gatherer->async->fill(gatherer->async->context, &frame, &frames[task->frame_count++]));
        task->consistent &= frame.status == STATUS_OK;
    }
    task->frames = frames;
    return STATUS_OK;
}

/* The task began to run after its thread was looked at: looks at that thread anew. */
static enum status read_stack_again(struct look_async_gatherer *gatherer, const struct look_async_item *item) {
    struct thread_state state = {.address = item->thread};
    struct python_stack stack = {0};
    struct look_frame *frames = NULL;
    if (item->thread == 0)
        return STATUS_OK;
    enum status status = python_stack_read(gatherer->async->stacks, &state, 1, &stack);
    size_t count = stack.count < gatherer->frames_left ? stack.count : gatherer->frames_left;
    if (status == STATUS_OK && count > 0) {
        frames = arena_take(&gatherer->async->look->arena, count * sizeof frames[0]);
        status = frames != NULL ? STATUS_OK : STATUS_FAILED;
        gatherer->frames_left -= count;
    }
    for (size_t i = 0; i < count && status == STATUS_OK; i++)
        status = gatherer->async->fill(gatherer->async->context, &stack.frames[i], &frames[i]);
    if (status == STATUS_OK)
        share_frames(gatherer, frames, count, stack.consistent);
    python_stack_release(&stack);
    return look_async_is_fatal(status) ? status : STATUS_OK;
}

static void take_shared(const struct look_async_item *item, struct look_task *task) {
    task->state = TASK_RUNNING;
    task->frames = item->frames;
    task->frame_count = item->frame_count;
    task->consistent = item->frames_consistent;
}

static enum look_task_state state_of(const struct look_async_gatherer *gatherer, const struct look_async_item *item) {
    if (gatherer->chain_count == 0)
        return item->task.coro == 0 ? TASK_DONE : item->current ? TASK_RUNNING : TASK_AWAITING;
    switch (gatherer->chain[0].state) {
    case COROUTINE_CREATED:
        return TASK_CREATED;
    case COROUTINE_EXECUTING:
        return TASK_RUNNING;
    case COROUTINE_FINISHED:
        return TASK_DONE;
    case COROUTINE_SUSPENDED:
    case COROUTINE_AWAITING:
        break;
    }
    return TASK_AWAITING;
}

/* Whether it is still the task that was found, and not one that was made in its place since. */
static enum status task_is_unchanged(struct look_async_gatherer *gatherer, const struct look_async_item *item,
                                     bool *unchanged) {
    struct asyncio_task again;
    enum status status = asyncio_task_read(gatherer->runtime, &gatherer->layout, item->task.future.address, &again);
    *unchanged = status == STATUS_OK && again.coro == item->task.coro && again.name == item->task.name;
    return look_async_is_fatal(status) ? status : STATUS_OK;
}

/* One attempt; *settled: what was found is of one instant. */
static enum status read_frames(struct look_async_gatherer *gatherer, const struct look_async_item *item,
                               bool *settled) {
    bool unchanged = false;
    enum status status = follow_chain(gatherer, item->task.coro);
    *settled = false;
    if (status != STATUS_OK)
        return status;
    bool executing = gatherer->chain_count > 0 && gatherer->chain[0].state == COROUTINE_EXECUTING;
    if (executing && item->frames == NULL)
        return read_stack_again(gatherer, item);
    if (!executing)
        TRY(chain_is_unchanged(gatherer, &unchanged));
    *settled = executing || unchanged;
    return STATUS_OK;
}

static enum status fill_frames(struct look_async_gatherer *gatherer, const struct look_async_item *item,
                               struct look_task *task) {
    enum status status = STATUS_OK;
    bool settled = false, same = true;
    for (int i = 0; i < LOOK_ASYNC_ATTEMPTS && !settled && same && status != STATUS_LIMIT; i++) {
        status = read_frames(gatherer, item, &settled);
        if (look_async_is_fatal(status))
            return status;
        TRY(task_is_unchanged(gatherer, item, &same));
    }
    if (!same) {
        /* It ended, and what its coroutine was may be anything by now. */
        task->state = TASK_DONE;
        return STATUS_OK;
    }
    task->cut = status == STATUS_LIMIT;
    task->consistent = settled || status == STATUS_LIMIT;
    task->state = state_of(gatherer, item);
    if (task->state == TASK_RUNNING && item->frames != NULL) {
        take_shared(item, task);
        return STATUS_OK;
    }
    return fill_chain(gatherer, task);
}

enum status look_async_fill_tasks(struct look_async_gatherer *gatherer) {
    struct look *look = gatherer->async->look;
    TRY(find_running(gatherer));
    look->tasks = calloc(gatherer->count + 1, sizeof look->tasks[0]);
    if (look->tasks == NULL)
        return STATUS_FAILED;
    for (size_t i = 0; i < gatherer->count; i++) {
        const struct look_async_item *item = &gatherer->items[i];
        struct look_task *task = &look->tasks[look->task_count++];
        *task = (struct look_task){
            .address = item->task.future.address,
            .name = item->name,
            .has_thread = item->thread != 0,
            .thread_id = item->thread_id,
            .interpreter = item->interpreter,
            .awaited_by = item->awaited_by,
            .awaited_by_count = item->awaited_by_count,
        };
        TRY(fill_frames(gatherer, item, task));
    }
    look->tasks_complete = gatherer->complete;
    look->has_tasks = true;
    return STATUS_OK;
}
