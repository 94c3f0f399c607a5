#include "cpython/asyncio.h"

#include "cpython/copy.h"
#include "cpython/long.h"
#include "cpython/str.h"
#include "cpython/type.h"

#include <inttypes.h>

enum {
    POINTER_BYTES = 8,
    NODE_BYTES = 16, /* struct llist_node: next, prev */
    /* Many times those known: a TaskObj has 168 bytes (184 free-threaded). */
    MAX_TASK_BYTES = 4096,
    MAX_STATE_BYTES = 16 << 20,
    SET_ENTRY_BYTES = 16, /* setentry: key, hash */
    SET_BATCH = 256,
};

/* ---- the table ---- */

/* One u64 of the table, in its order. */
struct column {
    const char *name;
    uint16_t target; /* offset in struct asyncio_layout of the layout_offset to fill */
    uint16_t width;  /* 0: the size of the struct in which the next ones lie */
};

#define SIZE(path)                                                                                                     \
    { #path, offsetof(struct asyncio_layout, path), 0 }
#define FIELD(path, width)                                                                                             \
    { #path, offsetof(struct asyncio_layout, path), width }

static const struct column columns[] = {
    SIZE(task.size),
    FIELD(task.task_name, POINTER_BYTES),
    FIELD(task.task_awaited_by, POINTER_BYTES),
    FIELD(task.task_is_task, 1),
    FIELD(task.task_awaited_by_is_set, 1),
    FIELD(task.task_coro, POINTER_BYTES),
    FIELD(task.task_node, NODE_BYTES),
    SIZE(interp.size),
    FIELD(interp.tasks_head, NODE_BYTES),
    SIZE(thread.size),
    FIELD(thread.running_loop, POINTER_BYTES),
    FIELD(thread.running_task, POINTER_BYTES),
    FIELD(thread.tasks_head, NODE_BYTES),
};

enum { COLUMNS = sizeof columns / sizeof columns[0] };
_Static_assert(COLUMNS * sizeof(uint64_t) == ASYNCIO_DEBUG_BYTES, "one u64 a column");

static enum status refuse(const struct column *column, uint64_t value, const char *why, struct error *error) {
    return error_set(error, STATUS_NOT_PYTHON, "its description of asyncio contradicts itself: %s is %" PRIu64 ", %s",
                     column->name, value, why);
}

/* Before these bytes of a struct no field of the table can be: what the runtime's own layout says is there. */
static uint64_t group_start(size_t size_column, const struct layout *layout) {
    if (columns[size_column].target == offsetof(struct asyncio_layout, task.size))
        return layout->object.size;
    if (columns[size_column].target == offsetof(struct asyncio_layout, thread.size))
        return layout->thread.size; /* _PyThreadStateImpl begins with a PyThreadState */
    return 0;
}

static enum status check_size(size_t index, uint64_t value, const struct layout *layout, struct error *error) {
    const struct column *column = &columns[index];
    bool is_task = column->target == offsetof(struct asyncio_layout, task.size);
    bool is_interp = column->target == offsetof(struct asyncio_layout, interp.size);
    if (value % POINTER_BYTES != 0 || value > (is_task ? MAX_TASK_BYTES : MAX_STATE_BYTES) ||
        value <= group_start(index, layout))
        return refuse(column, value, "not the size of that struct", error);
    if (is_interp && value != layout->interp.size)
        return refuse(column, value, "not what the runtime says", error);
    return STATUS_OK;
}

/* `size` is the index of the column with the size of the field's struct. */
static enum status check_field(const uint64_t *values, size_t size, size_t index, const struct layout *layout,
                               struct error *error) {
    const struct column *column = &columns[index];
    uint64_t value = values[index];
    uint64_t alignment = column->width == 1 ? 1 : POINTER_BYTES;
    if (value < group_start(size, layout) || value > values[size] || column->width > values[size] - value)
        return refuse(column, value, "outside its struct", error);
    if (value % alignment != 0)
        return refuse(column, value, "not aligned", error);
    for (size_t i = size + 1; i < index; i++)
        if (value < values[i] + columns[i].width && values[i] < value + column->width)
            return refuse(column, value, "where another field is", error);
    return STATUS_OK;
}

enum status asyncio_debug_decode(const void *table, size_t size_bytes, const struct layout *layout,
                                 struct asyncio_layout *asyncio, struct error *error) {
    uint64_t values[COLUMNS];
    size_t size = 0;
    if (size_bytes < sizeof values)
        return error_set(error, STATUS_NOT_PYTHON, "its description of asyncio is too short");
    if (!layout_has(layout->llist.next) || !layout_has(layout->llist.prev))
        return error_set(error, STATUS_NOT_PYTHON, "it has no description of asyncio");
    memcpy(values, table, sizeof values);
    for (size_t i = 0; i < COLUMNS; i++) {
        if (columns[i].width == 0) {
            size = i;
            TRY(check_size(i, values[i], layout, error));
        } else {
            TRY(check_field(values, size, i, layout, error));
        }
    }
    for (size_t i = 0; i < COLUMNS; i++) {
        layout_offset value = (layout_offset)values[i];
        memcpy((char *)asyncio + columns[i].target, &value, sizeof value);
    }
    return STATUS_OK;
}

enum status asyncio_open(struct runtime *runtime, remote_addr address, struct asyncio_layout *asyncio,
                         struct error *error) {
    uint8_t table[ASYNCIO_DEBUG_BYTES];
    enum status status = memory_read(runtime->objects, address, table, sizeof table);
    if (status != STATUS_OK)
        return error_set(error, status, "its description of asyncio cannot be read");
    return asyncio_debug_decode(table, sizeof table, &runtime->layout, asyncio, error);
}

/* ---- futures and tasks ---- */

static layout_offset later(layout_offset left, layout_offset right) {
    return left > right ? left : right;
}

/* Where a FutureObj's last field stands. copy_read reads 8 bytes there, which the bit fields behind the flags are
 * enough for. */
static layout_offset last_of_future(const struct asyncio_layout *asyncio) {
    layout_offset flags = later(asyncio->task.task_is_task, asyncio->task.task_awaited_by_is_set);
    return later(asyncio->task.task_awaited_by, flags & ~(layout_offset)(POINTER_BYTES - 1));
}

static enum status decode_future(const struct asyncio_layout *asyncio, remote_addr address, const struct copy *copy,
                                 struct asyncio_future *future) {
    uint8_t is_task = copy_u8(copy, asyncio->task.task_is_task);
    uint8_t is_set = copy_u8(copy, asyncio->task.task_awaited_by_is_set);
    *future = (struct asyncio_future){
        .address = address,
        .is_task = is_task == 1,
        .awaited_by_is_set = is_set == 1,
        .awaited_by = copy_u64(copy, asyncio->task.task_awaited_by),
    };
    bool plausible = is_task <= 1 && is_set <= 1 && future->awaited_by % POINTER_BYTES == 0;
    return plausible ? STATUS_OK : STATUS_TORN;
}

enum status asyncio_future_read(struct runtime *runtime, const struct asyncio_layout *asyncio, remote_addr address,
                                struct asyncio_future *future) {
    struct copy copy;
    TRY(copy_read(runtime->live, address, last_of_future(asyncio), &copy));
    return decode_future(asyncio, address, &copy, future);
}

enum status asyncio_task_read(struct runtime *runtime, const struct asyncio_layout *asyncio, remote_addr address,
                              struct asyncio_task *task) {
    const struct layout_llist *llist = &runtime->layout.llist;
    layout_offset last = later(last_of_future(asyncio), asyncio->task.task_name);
    last = later(last, asyncio->task.task_coro);
    last = later(last, asyncio->task.task_node + NODE_BYTES - POINTER_BYTES);
    struct copy copy;
    TRY(copy_read(runtime->live, address, last, &copy));
    TRY(decode_future(asyncio, address, &copy, &task->future));
    task->name = copy_u64(&copy, asyncio->task.task_name);
    task->coro = copy_u64(&copy, asyncio->task.task_coro);
    task->next = copy_u64(&copy, asyncio->task.task_node + llist->next);
    task->prev = copy_u64(&copy, asyncio->task.task_node + llist->prev);
    bool plausible = task->future.is_task && task->name % POINTER_BYTES == 0 && task->coro % POINTER_BYTES == 0;
    return plausible ? STATUS_OK : STATUS_TORN;
}

enum status asyncio_list_visit(struct runtime *runtime, const struct asyncio_layout *asyncio, remote_addr head,
                               asyncio_visit_fn *visit, void *context) {
    remote_addr node = 0, previous = head;
    TRY(memory_read_u64(runtime->live, head + runtime->layout.llist.next, &node));
    /* A list that was never set up has no head. */
    if (node == 0)
        return STATUS_OK;
    for (size_t i = 0; node != head; i++) {
        struct asyncio_task task;
        if (i == ASYNCIO_MAX_TASKS)
            return STATUS_LIMIT;
        /* A node that was unlinked meanwhile is the end (null) or leads back to another than the one we came from. This
         * also rules out any ring that does not lead back to the head. */
        TRY(asyncio_task_read(runtime, asyncio, node - asyncio->task.task_node, &task));
        if (task.prev != previous)
            return STATUS_TORN;
        TRY(visit(context, &task));
        previous = node;
        node = task.next;
    }
    return STATUS_OK;
}

/* A free entry has no key; a deleted one holds the dummy key and hash -1, which no real key has (Objects/setobject.c,
 * 3.14, 3.15). */
static enum status visit_entries(const uint8_t *bytes, size_t count, asyncio_awaiter_fn *visit, void *context) {
    for (size_t i = 0; i < count; i++) {
        remote_addr key = load_u64(bytes + i * SET_ENTRY_BYTES);
        uint64_t hash = load_u64(bytes + i * SET_ENTRY_BYTES + POINTER_BYTES);
        if (key != 0 && hash != UINT64_MAX)
            TRY(visit(context, key));
    }
    return STATUS_OK;
}

static enum status visit_set(struct runtime *runtime, remote_addr address, asyncio_awaiter_fn *visit, void *context) {
    const struct layout_set *set = &runtime->layout.set;
    struct copy head;
    TRY(copy_read(runtime->live, address, later(set->used, later(set->table, set->mask)), &head));
    uint64_t slots = copy_u64(&head, set->mask) + 1;
    remote_addr table = copy_u64(&head, set->table);
    if (slots == 0 || slots > ASYNCIO_MAX_AWAITERS || (slots & (slots - 1)) != 0 ||
        copy_u64(&head, set->used) > slots || table % POINTER_BYTES != 0)
        return STATUS_TORN;
    uint8_t bytes[SET_BATCH * SET_ENTRY_BYTES];
    for (uint64_t done = 0; done < slots; done += SET_BATCH) {
        size_t batch = slots - done < SET_BATCH ? (size_t)(slots - done) : SET_BATCH;
        TRY(memory_read(runtime->live, table + done * SET_ENTRY_BYTES, bytes, batch * SET_ENTRY_BYTES));
        TRY(visit_entries(bytes, batch, visit, context));
    }
    return STATUS_OK;
}

enum status asyncio_awaiters_visit(struct runtime *runtime, const struct asyncio_future *future,
                                   asyncio_awaiter_fn *visit, void *context) {
    if (future->awaited_by == 0)
        return STATUS_OK;
    if (!future->awaited_by_is_set)
        return visit(context, future->awaited_by);
    return visit_set(runtime, future->awaited_by, visit, context);
}

enum status asyncio_name_append(struct runtime *runtime, const struct asyncio_task *task, size_t max_characters,
                                struct buffer *text) {
    struct type_info type;
    TRY(type_read(runtime, task->name, &type));
    if ((type.flags & TYPE_IS_STR) != 0)
        return string_read(runtime, task->name, max_characters, text, NULL);
    if ((type.flags & TYPE_IS_INT) == 0)
        return STATUS_TORN;
    uint64_t number = 0;
    TRY(long_read_u64(runtime, task->name, &number));
    return buffer_append_format(text, "Task-%" PRIu64, number);
}
