#include "sampler/look_async.h"

#include "base/array.h"
#include "sampler/look_async_parts.h"

#include <stdlib.h>

enum {
    FIRST_MINOR = 14,
    /* Awaiters and frames of all tasks together: whatever the memory says, a look ends. */
    MAX_EDGES = 1 << 22,
    MAX_FRAMES = 1 << 22,
    MAX_NAMES_BYTES = 64 << 20,
};

enum status look_async_list_add(struct look_async_list *list, uint64_t value) {
    TRY(array_reserve((void **)&list->items, &list->capacity, list->count + 1, sizeof list->items[0]));
    list->items[list->count++] = value;
    return STATUS_OK;
}

static enum status gather(struct look_async_gatherer *gatherer) {
    struct error *error = &gatherer->async->look->tasks_error;
    if (gatherer->async->table == 0) {
        /* The program has not imported asyncio. */
        gatherer->async->look->has_tasks = gatherer->async->look->tasks_complete = true;
        return STATUS_OK;
    }
    if (asyncio_open(gatherer->runtime, gatherer->async->table, &gatherer->layout, error) != STATUS_OK)
        return STATUS_OK;
    TRY(look_async_read_tasks(gatherer));
    TRY(look_async_find_awaiters(gatherer));
    return look_async_fill_tasks(gatherer);
}

enum status look_async_read(const struct look_async *async) {
    struct look *look = async->look;
    struct look_async_gatherer gatherer = {
        .async = async,
        .runtime = async->stacks->runtime,
        .complete = true,
        .edges_left = MAX_EDGES,
        .frames_left = MAX_FRAMES,
        .names_left_bytes = MAX_NAMES_BYTES,
    };
    if (layout_minor(&gatherer.runtime->layout) < FIRST_MINOR) {
        error_set(&look->tasks_error, STATUS_NOT_FOUND,
                  "process %d runs Python 3.%d, but asyncio's tasks can be seen from 3.14 on only", (int)look->pid,
                  layout_minor(&gatherer.runtime->layout));
        return STATUS_OK;
    }
    enum status status = gather(&gatherer);
    free(gatherer.items);
    map_release(&gatherer.by_address);
    map_release(&gatherer.by_frame);
    free(gatherer.futures.items);
    free(gatherer.awaiters.items);
    map_release(&gatherer.seen);
    free(gatherer.chain);
    if (status == STATUS_OK || look_async_is_fatal(status))
        return status;
    error_set(&look->tasks_error, status, "the asyncio tasks of process %d cannot be read: %s", (int)look->pid,
              status_name(status));
    return STATUS_OK;
}
