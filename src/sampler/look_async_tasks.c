/* Which tasks there are. */
#include "sampler/look_async_parts.h"

#include "base/array.h"
#include "cpython/state_list.h"

#include <stdlib.h>

enum {
    MAX_NAME_CHARACTERS = 1000,
    BYTES_PER_CHARACTER = 12, /* a surrogate pair as two escapes */
};

static enum status read_name(struct look_async_gatherer *gatherer, const struct asyncio_task *task, const char **text) {
    struct buffer name;
    buffer_init(&name, (size_t)MAX_NAME_CHARACTERS * BYTES_PER_CHARACTER);
    enum status status = asyncio_name_append(gatherer->runtime, task, MAX_NAME_CHARACTERS, &name);
    if (status == STATUS_OK && name.size_bytes <= gatherer->names_left_bytes) {
        gatherer->names_left_bytes -= name.size_bytes;
        *text = arena_copy_text(&gatherer->async->look->arena, buffer_text(&name), name.size_bytes);
        status = *text != NULL ? STATUS_OK : STATUS_FAILED;
    }
    buffer_release(&name);
    return look_async_is_fatal(status) ? status : STATUS_OK;
}

enum status look_async_add_task(struct look_async_gatherer *gatherer, const struct asyncio_task *task, size_t *place) {
    uint64_t known = 0;
    if (map_get(&gatherer->by_address, task->future.address, &known)) {
        *place = (size_t)known;
        return STATUS_OK;
    }
    if (gatherer->count == ASYNCIO_MAX_TASKS) {
        gatherer->complete = false;
        return STATUS_LIMIT;
    }
    TRY(array_reserve((void **)&gatherer->items, &gatherer->capacity, gatherer->count + 1, sizeof gatherer->items[0]));
    const char *name = NULL;
    TRY(read_name(gatherer, task, &name));
    TRY(map_set(&gatherer->by_address, task->future.address, gatherer->count));
    *place = gatherer->count++;
    gatherer->items[*place] = (struct look_async_item){
        .task = *task,
        .name = name,
        .thread = gatherer->thread.address,
        .thread_id = gatherer->thread.thread_id,
        .interpreter = gatherer->interpreter,
    };
    return STATUS_OK;
}

static enum status visit_task(void *context, const struct asyncio_task *task) {
    size_t place = 0;
    return look_async_add_task(context, task, &place);
}

static enum status read_list(struct look_async_gatherer *gatherer, remote_addr head) {
    enum status status = STATUS_TORN;
    for (int i = 0; i < LOOK_ASYNC_ATTEMPTS && (status == STATUS_TORN || status == STATUS_UNREADABLE); i++)
        status = asyncio_list_visit(gatherer->runtime, &gatherer->layout, head, visit_task, gatherer);
    if (status != STATUS_OK)
        gatherer->complete = false;
    return look_async_is_fatal(status) ? status : STATUS_OK;
}

static enum status read_thread(struct look_async_gatherer *gatherer) {
    remote_addr address = gatherer->thread.address;
    struct asyncio_task task;
    remote_addr running = 0;
    TRY(read_list(gatherer, address + gatherer->layout.thread.tasks_head));
    if (memory_read_u64(gatherer->runtime->live, address + gatherer->layout.thread.running_task, &running) !=
            STATUS_OK ||
        running == 0 || asyncio_task_read(gatherer->runtime, &gatherer->layout, running, &task) != STATUS_OK)
        return STATUS_OK;
    size_t place = 0;
    enum status status = look_async_add_task(gatherer, &task, &place);
    if (status == STATUS_OK)
        gatherer->items[place].current = true;
    return look_async_is_fatal(status) ? status : STATUS_OK;
}

/* CPython's list of threads begins with the newest; the tasks of the oldest come first in the look. */
static enum status read_interpreter(struct look_async_gatherer *gatherer, remote_addr address,
                                    struct state_list *states) {
    struct interp interp;
    if (interp_read(gatherer->runtime, address, &interp) != STATUS_OK)
        return STATUS_OK;
    TRY(state_list_read_threads(gatherer->runtime, address, states));
    gatherer->complete &= states->complete;
    gatherer->interpreter = interp.id;
    for (size_t i = states->count; i-- > 0;)
        if (thread_state_read(gatherer->runtime, states->items[i], &gatherer->thread) == STATUS_OK &&
            gatherer->thread.interp == address)
            TRY(read_thread(gatherer));
    /* The tasks of threads that have ended. */
    gatherer->thread = (struct thread_state){0};
    return read_list(gatherer, address + gatherer->layout.interp.tasks_head);
}

enum status look_async_read_tasks(struct look_async_gatherer *gatherer) {
    struct state_list interps = {0}, states = {0};
    enum status status = state_list_read_interps(gatherer->runtime, &interps);
    gatherer->complete &= interps.complete;
    for (size_t i = 0; i < interps.count && status == STATUS_OK; i++)
        status = read_interpreter(gatherer, interps.items[i], &states);
    state_list_release(&interps);
    state_list_release(&states);
    return status;
}
