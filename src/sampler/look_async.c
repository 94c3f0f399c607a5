#include "sampler/look_async.h"

#include "cpython/asyncio.h"
#include "cpython/coroutine.h"

#include <stdlib.h>
#include <string.h>

enum {
    FIRST_MINOR = 14,
    /* How often what keeps changing is read anew. */
    MAX_ATTEMPTS = 20,
    MAX_NAME_CHARACTERS = 1000,
    BYTES_PER_CHARACTER = 12, /* a surrogate pair as two escapes */
    /* Coroutines that await each other in one task. */
    MAX_CHAIN = 1 << 16,
    /* Awaiters and frames of all tasks together: whatever the memory says, a look ends. */
    MAX_EDGES = 1 << 22,
    MAX_FRAMES = 1 << 22,
    MAX_NAMES_BYTES = 64 << 20,
};

/* A task on its way into the look. */
struct item {
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
struct gatherer {
    const struct look_async *async;
    struct runtime *runtime;
    struct asyncio_layout layout;
    struct item *items;
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
    struct list { /* of futures still to be looked through, or of the places of awaiters */
        uint64_t *items;
        size_t count;
        size_t capacity;
    } futures, awaiters;
    struct map seen; /* a future or task -> the last place for which it was met, plus one */
    size_t place;    /* of the task whose awaiters are sought */
    struct coroutine *chain;
    size_t chain_count;
    size_t chain_capacity;
};

/* Doubles an array. */
static enum status grow(void **items, size_t *capacity, size_t item_bytes) {
    size_t wanted = *capacity > 0 ? *capacity * 2 : 64;
    void *grown = realloc(*items, wanted * item_bytes);
    if (grown == NULL)
        return STATUS_FAILED;
    *items = grown;
    *capacity = wanted;
    return STATUS_OK;
}

static enum status list_add(struct list *list, uint64_t value) {
    if (list->count == list->capacity) {
        void *items = list->items;
        TRY(grow(&items, &list->capacity, sizeof list->items[0]));
        list->items = items;
    }
    list->items[list->count++] = value;
    return STATUS_OK;
}

/* What ends a look; all else costs one task or one list. */
static bool is_fatal(enum status status) {
    return status == STATUS_FAILED || status == STATUS_NO_PROCESS;
}

/* ---- the tasks ---- */

static enum status read_name(struct gatherer *gatherer, const struct asyncio_task *task, const char **text) {
    struct buffer name;
    buffer_init(&name, (size_t)MAX_NAME_CHARACTERS * BYTES_PER_CHARACTER);
    enum status status = asyncio_name_append(gatherer->runtime, task, MAX_NAME_CHARACTERS, &name);
    if (status == STATUS_OK && name.size_bytes <= gatherer->names_left_bytes) {
        gatherer->names_left_bytes -= name.size_bytes;
        *text = arena_copy_text(&gatherer->async->look->arena, buffer_text(&name), name.size_bytes);
        status = *text != NULL ? STATUS_OK : STATUS_FAILED;
    }
    buffer_release(&name);
    return is_fatal(status) ? status : STATUS_OK;
}

static enum status add_task(struct gatherer *gatherer, const struct asyncio_task *task, size_t *place) {
    uint64_t known = 0;
    if (map_get(&gatherer->by_address, task->future.address, &known)) {
        *place = (size_t)known;
        return STATUS_OK;
    }
    if (gatherer->count == ASYNCIO_MAX_TASKS) {
        gatherer->complete = false;
        return STATUS_LIMIT;
    }
    if (gatherer->count == gatherer->capacity) {
        void *items = gatherer->items;
        TRY(grow(&items, &gatherer->capacity, sizeof gatherer->items[0]));
        gatherer->items = items;
    }
    const char *name = NULL;
    TRY(read_name(gatherer, task, &name));
    TRY(map_set(&gatherer->by_address, task->future.address, gatherer->count));
    *place = gatherer->count++;
    gatherer->items[*place] = (struct item){
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
    return add_task(context, task, &place);
}

static enum status read_list(struct gatherer *gatherer, remote_addr head) {
    enum status status = STATUS_TORN;
    for (int i = 0; i < MAX_ATTEMPTS && (status == STATUS_TORN || status == STATUS_UNREADABLE); i++)
        status = asyncio_list_visit(gatherer->runtime, &gatherer->layout, head, visit_task, gatherer);
    if (status != STATUS_OK)
        gatherer->complete = false;
    return is_fatal(status) ? status : STATUS_OK;
}

static enum status read_thread(struct gatherer *gatherer) {
    remote_addr address = gatherer->thread.address;
    struct asyncio_task task;
    remote_addr running = 0;
    TRY(read_list(gatherer, address + gatherer->layout.thread.tasks_head));
    if (memory_read_u64(gatherer->runtime->live, address + gatherer->layout.thread.running_task, &running) !=
            STATUS_OK ||
        running == 0 || asyncio_task_read(gatherer->runtime, &gatherer->layout, running, &task) != STATUS_OK)
        return STATUS_OK;
    size_t place = 0;
    enum status status = add_task(gatherer, &task, &place);
    if (status == STATUS_OK)
        gatherer->items[place].current = true;
    return is_fatal(status) ? status : STATUS_OK;
}

/* CPython's list of threads begins with the newest; the tasks of the oldest come first in the look. */
static enum status read_interpreter(struct gatherer *gatherer, const struct interp *interp) {
    struct list states = {0};
    enum status status = STATUS_OK;
    remote_addr address = interp->threads_head;
    gatherer->interpreter = interp->id;
    for (size_t i = 0; address != 0 && i < MAX_THREADS && status == STATUS_OK; i++) {
        struct thread_state state;
        if (thread_state_read(gatherer->runtime, address, &state) != STATUS_OK || state.interp != interp->address)
            break;
        status = list_add(&states, address);
        address = state.next;
    }
    for (size_t i = states.count; i-- > 0 && status == STATUS_OK;)
        if (thread_state_read(gatherer->runtime, states.items[i], &gatherer->thread) == STATUS_OK)
            status = read_thread(gatherer);
    free(states.items);
    TRY(status);
    /* The tasks of threads that have ended. */
    gatherer->thread = (struct thread_state){0};
    return read_list(gatherer, interp->address + gatherer->layout.interp.tasks_head);
}

static enum status read_tasks(struct gatherer *gatherer) {
    remote_addr address = 0;
    TRY(interp_first(gatherer->runtime, &address));
    for (size_t i = 0; address != 0 && i < MAX_INTERPRETERS; i++) {
        struct interp interp;
        if (interp_read(gatherer->runtime, address, &interp) != STATUS_OK)
            break;
        address = interp.next;
        TRY(read_interpreter(gatherer, &interp));
    }
    return STATUS_OK;
}

/* ---- who awaits whom ---- */

/* A task that is in no list but awaits one that is. */
static enum status add_unlisted(struct gatherer *gatherer, remote_addr address, size_t *place) {
    struct asyncio_task task;
    TRY(asyncio_task_read(gatherer->runtime, &gatherer->layout, address, &task));
    gatherer->interpreter = gatherer->items[gatherer->place].interpreter;
    return add_task(gatherer, &task, place);
}

static enum status visit_awaiter(void *context, remote_addr awaiter) {
    struct gatherer *gatherer = context;
    uint64_t last = 0;
    if (map_get(&gatherer->seen, awaiter, &last) && last == gatherer->place + 1)
        return STATUS_OK;
    if (gatherer->edges_left == 0)
        return STATUS_LIMIT;
    gatherer->edges_left--;
    TRY(map_set(&gatherer->seen, awaiter, gatherer->place + 1));
    uint64_t known = 0;
    if (map_get(&gatherer->by_address, awaiter, &known))
        return list_add(&gatherer->awaiters, known);
    struct asyncio_future future;
    enum status status = asyncio_future_read(gatherer->runtime, &gatherer->layout, awaiter, &future);
    if (status == STATUS_OK && !future.is_task)
        return list_add(&gatherer->futures, awaiter);
    size_t place = 0;
    if (status == STATUS_OK)
        status = add_unlisted(gatherer, awaiter, &place);
    if (status == STATUS_OK)
        return list_add(&gatherer->awaiters, place);
    /* One awaiter that is gone costs that one. */
    return is_fatal(status) || status == STATUS_LIMIT ? status : STATUS_OK;
}

static int compare_places(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

static enum status keep_awaiters(struct gatherer *gatherer) {
    struct list *awaiters = &gatherer->awaiters;
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
static enum status find_awaiters(struct gatherer *gatherer) {
    gatherer->futures.count = gatherer->awaiters.count = 0;
    struct asyncio_future future = gatherer->items[gatherer->place].task.future;
    for (;;) {
        enum status status = asyncio_awaiters_visit(gatherer->runtime, &future, visit_awaiter, gatherer);
        if (is_fatal(status))
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

static enum status find_all_awaiters(struct gatherer *gatherer) {
    gatherer->thread = (struct thread_state){0};
    /* Tasks that only their awaited ones know of are appended meanwhile. */
    for (gatherer->place = 0; gatherer->place < gatherer->count; gatherer->place++)
        TRY(find_awaiters(gatherer));
    return STATUS_OK;
}

/* ---- their frames ---- */

/* Gives the running tasks their part of these frames of one thread: from the task's coroutine inwards, up to where
 * another task begins (one that was started eagerly). */
static void share_frames(struct gatherer *gatherer, const struct look_frame *frames, size_t count, bool consistent) {
    size_t first = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t place = 0;
        if (!map_get(&gatherer->by_frame, frames[i].address, &place))
            continue;
        struct item *item = &gatherer->items[place];
        item->frames = frames + first;
        item->frame_count = i + 1 - first;
        item->frames_consistent = consistent;
        first = i + 1;
    }
}

static enum status find_running(struct gatherer *gatherer) {
    const struct look *look = gatherer->async->look;
    for (size_t i = 0; i < gatherer->count; i++)
        if (gatherer->items[i].task.coro != 0)
            TRY(map_set(&gatherer->by_frame, gatherer->items[i].task.coro + gatherer->runtime->layout.gen.gi_iframe,
                        i));
    for (size_t i = 0; i < look->thread_count; i++)
        share_frames(gatherer, look->threads[i].frames, look->threads[i].frame_count, look->threads[i].consistent);
    return STATUS_OK;
}

static enum status append_coroutine(struct gatherer *gatherer, const struct coroutine *coroutine) {
    if (gatherer->chain_count == gatherer->chain_capacity) {
        void *chain = gatherer->chain;
        TRY(grow(&chain, &gatherer->chain_capacity, sizeof gatherer->chain[0]));
        gatherer->chain = chain;
    }
    gatherer->chain[gatherer->chain_count++] = *coroutine;
    return STATUS_OK;
}

/* From the task's coroutine to the one that awaits what is no coroutine. */
static enum status follow_chain(struct gatherer *gatherer, remote_addr address) {
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
static enum status chain_is_unchanged(struct gatherer *gatherer, bool *unchanged) {
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

static enum status fill_chain(struct gatherer *gatherer, struct look_task *task) {
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
static enum status read_stack_again(struct gatherer *gatherer, const struct item *item) {
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
    return is_fatal(status) ? status : STATUS_OK;
}

static void take_shared(const struct item *item, struct look_task *task) {
    task->state = TASK_RUNNING;
    task->frames = item->frames;
    task->frame_count = item->frame_count;
    task->consistent = item->frames_consistent;
}

static enum look_task_state state_of(const struct gatherer *gatherer, const struct item *item) {
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
static enum status task_is_unchanged(struct gatherer *gatherer, const struct item *item, bool *unchanged) {
    struct asyncio_task again;
    enum status status = asyncio_task_read(gatherer->runtime, &gatherer->layout, item->task.future.address, &again);
    *unchanged = status == STATUS_OK && again.coro == item->task.coro && again.name == item->task.name;
    return is_fatal(status) ? status : STATUS_OK;
}

/* One attempt; *settled: what was found is of one instant. */
static enum status read_frames(struct gatherer *gatherer, const struct item *item, bool *settled) {
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

static enum status fill_frames(struct gatherer *gatherer, const struct item *item, struct look_task *task) {
    enum status status = STATUS_OK;
    bool settled = false, same = true;
    for (int i = 0; i < MAX_ATTEMPTS && !settled && same && status != STATUS_LIMIT; i++) {
        status = read_frames(gatherer, item, &settled);
        if (is_fatal(status))
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

static enum status fill_tasks(struct gatherer *gatherer) {
    struct look *look = gatherer->async->look;
    look->tasks = calloc(gatherer->count + 1, sizeof look->tasks[0]);
    if (look->tasks == NULL)
        return STATUS_FAILED;
    for (size_t i = 0; i < gatherer->count; i++) {
        const struct item *item = &gatherer->items[i];
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

/* ---- all of it ---- */

static enum status gather(struct gatherer *gatherer) {
    struct error *error = &gatherer->async->look->tasks_error;
    if (gatherer->async->table == 0) {
        /* The program has not imported asyncio. */
        gatherer->async->look->has_tasks = gatherer->async->look->tasks_complete = true;
        return STATUS_OK;
    }
    if (asyncio_open(gatherer->runtime, gatherer->async->table, &gatherer->layout, error) != STATUS_OK)
        return STATUS_OK;
    TRY(read_tasks(gatherer));
    TRY(find_all_awaiters(gatherer));
    TRY(find_running(gatherer));
    return fill_tasks(gatherer);
}

enum status look_async_read(const struct look_async *async) {
    struct look *look = async->look;
    struct gatherer gatherer = {
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
    if (status == STATUS_OK || is_fatal(status))
        return status;
    error_set(&look->tasks_error, status, "the asyncio tasks of process %d cannot be read: %s", (int)look->pid,
              status_name(status));
    return STATUS_OK;
}
