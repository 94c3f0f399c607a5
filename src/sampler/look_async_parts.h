/* What the files of look_async share; nobody else includes this. */
#ifndef STROBE_SAMPLER_LOOK_ASYNC_PARTS_H
#define STROBE_SAMPLER_LOOK_ASYNC_PARTS_H

#include "base/map.h"
#include "cpython/asyncio.h"
#include "cpython/coroutine.h"
#include "sampler/look_async.h"

/* How often what keeps changing is read anew. */
enum { LOOK_ASYNC_ATTEMPTS = 20 };

struct look_async_list {
    uint64_t *items;
    size_t count;
    size_t capacity;
};

/* A task on its way into the look. */
struct look_async_item {
    struct asyncio_task task;
    const char *name;   /* read at once: a task may be gone a moment later */
    remote_addr thread; /* its thread state, 0 when it has none */
    uint64_t thread_id;
    int64_t interpreter;
    bool current; /* the thread says that it runs this task now */
    /* Its part of a thread's frames: when its coroutine is on that thread's stack. */
    const struct look_frame *frames;
    size_t frame_count;
    bool frames_consistent;
    const size_t *awaited_by;
    size_t awaited_by_count;
};

/* What is alive while the tasks are gathered. */
struct look_async_gatherer {
    const struct look_async *async;
    struct runtime *runtime;
    struct asyncio_layout layout;
    struct look_async_item *items;
    size_t count;
    size_t capacity;
    struct map by_address; /* task -> its place in items */
    struct map by_frame;   /* the frame of a task's coroutine -> the task's place */
    /* What the task that is being visited belongs to. */
    struct thread_state thread;
    int64_t interpreter;
    bool complete;
    size_t edges_left;
    size_t frames_left;
    size_t names_left_bytes;
    struct look_async_list futures;  /* still to be looked through */
    struct look_async_list awaiters; /* their places */
    struct map seen;                 /* a future or task -> the last place for which it was met, plus one */
    size_t place;                    /* of the task whose awaiters are sought */
    struct coroutine *chain;
    size_t chain_count;
    size_t chain_capacity;
};

/* What ends a look; all else costs one task or one list. */
static inline bool look_async_is_fatal(enum status status) {
    return status == STATUS_FAILED || status == STATUS_NO_PROCESS;
}

enum status look_async_list_add(struct look_async_list *list, uint64_t value) MUST_USE;

/* Finds the tasks of all interpreters. */
enum status look_async_read_tasks(struct look_async_gatherer *gatherer) MUST_USE;
/* Adds one that belongs to gatherer->thread, if it is not there yet; *place is its own. STATUS_LIMIT: too many. */
enum status look_async_add_task(struct look_async_gatherer *gatherer, const struct asyncio_task *task,
                                size_t *place) MUST_USE;
/* Finds who awaits each of them. Tasks that only those know of whom they await are added. */
enum status look_async_find_awaiters(struct look_async_gatherer *gatherer) MUST_USE;
/* Puts them all, with their frames, into the look. */
enum status look_async_fill_tasks(struct look_async_gatherer *gatherer) MUST_USE;

#endif
