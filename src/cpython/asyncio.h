/* asyncio's tasks, by the table with which the extension module `_asyncio` describes itself (3.14+). Only tasks and
 * futures of that module are in it; those of asyncio's Python code (_PyTask, used where there is no `_asyncio`) are
 * not. */
#ifndef STROBE_CPYTHON_ASYNCIO_H
#define STROBE_CPYTHON_ASYNCIO_H

#include "base/buffer.h"
#include "cpython/runtime.h"

/* More tasks than this in one list is a damaged list; more awaiters of one task, a damaged set. */
enum { ASYNCIO_MAX_TASKS = 1 << 20, ASYNCIO_MAX_AWAITERS = 1 << 20 };

/* struct _Py_AsyncioModuleDebugOffsets (Modules/_asynciomodule.c 3.14, 3.15): 13 u64, the same in both. */
enum { ASYNCIO_DEBUG_BYTES = 104 };
struct asyncio_layout {
    struct {
        layout_offset size;
        layout_offset task_name;
        layout_offset task_awaited_by;
        layout_offset task_is_task;
        layout_offset task_awaited_by_is_set;
        layout_offset task_coro;
        layout_offset task_node;
    } task; /* TaskObj; a FutureObj begins alike, up to and with the awaiters and the two flags */
    struct {
        layout_offset size;
        layout_offset tasks_head;
    } interp; /* PyInterpreterState */
    struct {
        layout_offset size;
        layout_offset running_loop;
        layout_offset running_task;
        layout_offset tasks_head;
    } thread; /* _PyThreadStateImpl */
};

/* Checks the table's offsets against each other and against the runtime's own layout. STATUS_NOT_PYTHON when they
 * contradict; the error says which. */
enum status asyncio_debug_decode(const void *table, size_t size_bytes, const struct layout *layout,
                                 struct asyncio_layout *asyncio, struct error *error) MUST_USE;
/* Reads the table at `address` and decodes it. */
enum status asyncio_open(struct runtime *runtime, remote_addr address, struct asyncio_layout *asyncio,
                         struct error *error) MUST_USE;

/* A Future, which may be a Task. */
struct asyncio_future {
    remote_addr address;
    bool is_task;
    bool awaited_by_is_set;
    remote_addr awaited_by; /* a Future, or a set of them; 0 when nobody awaits it */
};

struct asyncio_task {
    struct asyncio_future future;
    remote_addr name; /* a str, or the int that a name not given is made of; 0 in a task that is being cleared */
    remote_addr coro; /* what it runs, most often a coroutine; 0 when it is done */
    remote_addr next; /* links of the list it is in, both 0 when it is in none */
    remote_addr prev;
};

/* STATUS_TORN when no future stands there, as far as its few bytes can tell. */
enum status asyncio_future_read(struct runtime *runtime, const struct asyncio_layout *asyncio, remote_addr address,
                                struct asyncio_future *future) MUST_USE;
/* STATUS_TORN when no task stands there. */
enum status asyncio_task_read(struct runtime *runtime, const struct asyncio_layout *asyncio, remote_addr address,
                              struct asyncio_task *task) MUST_USE;

/* A result other than STATUS_OK ends the walk and is returned. */
typedef enum status asyncio_visit_fn(void *context, const struct asyncio_task *task);

/* Visits the tasks of the list whose head stands at `head`, oldest first. STATUS_TORN when the list changed under the
 * reader's hands: some tasks were not visited, and looking again is worth it. */
enum status asyncio_list_visit(struct runtime *runtime, const struct asyncio_layout *asyncio, remote_addr head,
                               asyncio_visit_fn *visit, void *context) MUST_USE;

typedef enum status asyncio_awaiter_fn(void *context, remote_addr awaiter);

/* Visits who awaits the future: addresses of other futures, not yet checked. */
enum status asyncio_awaiters_visit(struct runtime *runtime, const struct asyncio_future *future,
                                   asyncio_awaiter_fn *visit, void *context) MUST_USE;

/* Appends the name as Task.get_name() gives it, cut at max_characters. */
enum status asyncio_name_append(struct runtime *runtime, const struct asyncio_task *task, size_t max_characters,
                                struct buffer *text) MUST_USE;

#endif
