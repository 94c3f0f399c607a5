/* Who awaits whom. */
#include "sampler/look_async_parts.h"

#include <stdlib.h>

/* A task that is in no list but awaits one that is. */
static enum status add_unlisted(struct look_async_gatherer *gatherer, remote_addr address, size_t *place) {
    struct asyncio_task task;
    TRY(asyncio_task_read(gatherer->runtime, &gatherer->layout, address, &task));
    gatherer->interpreter = gatherer->items[gatherer->place].interpreter;
    return look_async_add_task(gatherer, &task, place);
}

static enum status visit_awaiter(void *context, remote_addr awaiter) {
    struct look_async_gatherer *gatherer = context;
    uint64_t last = 0;
    if (map_get(&gatherer->seen, awaiter, &last) && last == gatherer->place + 1)
        return STATUS_OK;
    if (gatherer->edges_left == 0)
        return STATUS_LIMIT;
    gatherer->edges_left--;
    TRY(map_set(&gatherer->seen, awaiter, gatherer->place + 1));
    uint64_t known = 0;
    if (map_get(&gatherer->by_address, awaiter, &known))
        return look_async_list_add(&gatherer->awaiters, known);
    struct asyncio_future future;
    enum status status = asyncio_future_read(gatherer->runtime, &gatherer->layout, awaiter, &future);
    if (status == STATUS_OK && !future.is_task)
        return look_async_list_add(&gatherer->futures, awaiter);
    size_t place = 0;
    if (status == STATUS_OK)
        status = add_unlisted(gatherer, awaiter, &place);
    if (status == STATUS_OK)
        return look_async_list_add(&gatherer->awaiters, place);
    /* One awaiter that is gone costs that one. */
    return look_async_is_fatal(status) || status == STATUS_LIMIT ? status : STATUS_OK;
}

static int compare_places(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

static enum status keep_awaiters(struct look_async_gatherer *gatherer) {
    struct look_async_list *awaiters = &gatherer->awaiters;
    size_t *places = arena_take(&gatherer->async->look->arena, awaiters->count * sizeof places[0] + 1);
    if (places == NULL)
        return STATUS_FAILED;
    if (awaiters->count > 0)
        qsort(awaiters->items, awaiters->count, sizeof awaiters->items[0], compare_places);
    for (size_t i = 0; i < awaiters->count; i++)
        places[i] = (size_t)awaiters->items[i];
    gatherer->items[gatherer->place].awaited_by = places;
    gatherer->items[gatherer->place].awaited_by_count = awaiters->count;
    return STATUS_OK;
}

/* Futures between two tasks are looked through, whoever made them. */
static enum status find_awaiters(struct look_async_gatherer *gatherer) {
    gatherer->futures.count = gatherer->awaiters.count = 0;
    struct asyncio_future future = gatherer->items[gatherer->place].task.future;
    for (;;) {
        enum status status = asyncio_awaiters_visit(gatherer->runtime, &future, visit_awaiter, gatherer);
        if (look_async_is_fatal(status))
            return status;
        if (status != STATUS_OK)
            gatherer->complete = false;
        do {
            if (gatherer->futures.count == 0)
                return keep_awaiters(gatherer);
            remote_addr next = gatherer->futures.items[--gatherer->futures.count];
            status = asyncio_future_read(gatherer->runtime, &gatherer->layout, next, &future);
        } while (status != STATUS_OK);
    }
}

enum status look_async_find_awaiters(struct look_async_gatherer *gatherer) {
    gatherer->thread = (struct thread_state){0};
    /* Tasks that only their awaited ones know of are appended meanwhile. */
    for (gatherer->place = 0; gatherer->place < gatherer->count; gatherer->place++)
        TRY(find_awaiters(gatherer));
    return STATUS_OK;
}
