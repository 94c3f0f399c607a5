/* Tasks as trees: a task that nobody awaits is a root, and below each task stands what it awaits. */
#include "cli/dump_writer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Deeper levels stand below each other: lines must stay readable. */
enum { INDENT_COLUMNS = 4, MAX_INDENT_LEVELS = 16 };

/* Task i awaits tasks[starts[i]] to tasks[starts[i + 1] - 1]. */
struct forest {
    const struct look *look;
    size_t *starts;
    size_t *tasks;
    bool *written;
    struct level {
        size_t task;
        size_t next; /* the place in forest.tasks of what is still to be written below it */
    } * path;
    const struct look_task *last_root;
};

static void forest_release(struct forest *forest) {
    free(forest->starts);
    free(forest->tasks);
    free(forest->written);
    free(forest->path);
}

/* Turns 'is awaited by' around. */
static enum status forest_init(struct forest *forest, const struct look *look) {
    size_t edges = 0;
    for (size_t i = 0; i < look->task_count; i++)
        edges += look->tasks[i].awaited_by_count;
    *forest = (struct forest){.look = look};
    forest->starts = calloc(look->task_count + 2, sizeof forest->starts[0]);
    forest->tasks = calloc(edges + 1, sizeof forest->tasks[0]);
    forest->written = calloc(look->task_count + 1, sizeof forest->written[0]);
    forest->path = calloc(look->task_count + 1, sizeof forest->path[0]);
    if (forest->starts == NULL || forest->tasks == NULL || forest->written == NULL || forest->path == NULL)
        return STATUS_FAILED;
    /* Counted two places up, summed, filled one place up: then starts[i] is where i's begin. */
    for (size_t i = 0; i < look->task_count; i++)
        for (size_t j = 0; j < look->tasks[i].awaited_by_count; j++)
            forest->starts[look->tasks[i].awaited_by[j] + 2]++;
    for (size_t i = 2; i < look->task_count + 2; i++)
        forest->starts[i] += forest->starts[i - 1];
    for (size_t i = 0; i < look->task_count; i++)
        for (size_t j = 0; j < look->tasks[i].awaited_by_count; j++)
            forest->tasks[forest->starts[look->tasks[i].awaited_by[j] + 1]++] = i;
    return STATUS_OK;
}

static const struct look_thread *thread_of(const struct look *look, const struct look_task *task) {
    for (size_t i = 0; i < look->thread_count && task->has_thread; i++) {
        const struct look_thread *thread = &look->threads[i];
        if (thread->has_python && thread->thread_id == task->thread_id && thread->interpreter == task->interpreter)
            return thread;
    }
    return NULL;
}

static bool same_thread(const struct look_task *left, const struct look_task *right) {
    return left->has_thread == right->has_thread && left->interpreter == right->interpreter &&
           left->thread_id == right->thread_id;
}

static void write_thread(struct dump_writer *writer, const struct look *look, const struct look_task *task) {
    const struct look_thread *thread = thread_of(look, task);
    if (!task->has_thread)
        fputs("threads that have ended", writer->stream);
    else if (thread == NULL)
        fprintf(writer->stream, "thread 0x%" PRIx64, task->thread_id);
    else
        fprintf(writer->stream, "thread %" PRIu64, thread->native_id);
    if (thread != NULL && thread->name != NULL)
        fprintf(writer->stream, " \"%s\"", dump_safe(writer, thread->name));
}

static void write_task_name(struct dump_writer *writer, const struct look_task *task) {
    const struct palette *palette = writer->palette;
    fprintf(writer->stream, "%*s%sTask \"%s\"%s", writer->indent, "", palette->thread,
            task->name != NULL ? dump_safe(writer, task->name) : "?", palette->end);
    fprintf(writer->stream, " %s0x%" PRIx64 "%s", palette->file, task->address, palette->end);
}

static void write_task(struct dump_writer *writer, const struct look *look, const struct look_task *task,
                       const struct look_task *awaiter) {
    static const char *const states[] = {
        [TASK_CREATED] = "not begun", [TASK_AWAITING] = "awaiting", [TASK_RUNNING] = "running", [TASK_DONE] = "done"};
    write_task_name(writer, task);
    fprintf(writer->stream, " (%s)", states[task->state]);
    if (awaiter != NULL && !same_thread(task, awaiter)) {
        fputs(" of ", writer->stream);
        write_thread(writer, look, task);
    }
    if (!task->consistent)
        fprintf(writer->stream, " %s[changed while it was read; --blocking reads it at rest]%s",
                writer->palette->warning, writer->palette->end);
    fputc('\n', writer->stream);
    for (size_t i = 0; i < task->frame_count; i++)
        dump_write_frame(writer, &task->frames[i]);
    if (task->cut)
        fprintf(writer->stream, "%*s    (further frames are not shown)\n", writer->indent, "");
}

static void begin_level(struct forest *forest, size_t depth, size_t task) {
    forest->path[depth] = (struct level){task, forest->starts[task]};
    forest->written[task] = true;
}

/* Writes a task and all that it awaits. A task that several await is written in full below the first of them. */
static void write_tree(struct dump_writer *writer, struct forest *forest, size_t root) {
    const struct look *look = forest->look;
    size_t depth = 0;
    writer->indent = INDENT_COLUMNS;
    write_task(writer, look, &look->tasks[root], NULL);
    begin_level(forest, 0, root);
    for (;;) {
        struct level *level = &forest->path[depth];
        if (level->next == forest->starts[level->task + 1]) {
            if (depth-- == 0)
                break;
            continue;
        }
        size_t task = forest->tasks[level->next++];
        size_t levels = depth + 2 < MAX_INDENT_LEVELS ? depth + 2 : MAX_INDENT_LEVELS;
        writer->indent = INDENT_COLUMNS * (int)levels;
        if (forest->written[task]) {
            write_task_name(writer, &look->tasks[task]);
            fputs(" (shown above)\n", writer->stream);
        } else {
            write_task(writer, look, &look->tasks[task], &look->tasks[level->task]);
            begin_level(forest, ++depth, task);
        }
    }
    writer->indent = 0;
}

static void write_root(struct dump_writer *writer, struct forest *forest, size_t root, const char *remark) {
    const struct look_task *task = &forest->look->tasks[root];
    if (forest->last_root == NULL || !same_thread(task, forest->last_root)) {
        fprintf(writer->stream, "\n%sTasks%s of ", writer->palette->thread, writer->palette->end);
        write_thread(writer, forest->look, task);
        if (forest->look->interpreter_count > 1)
            fprintf(writer->stream, " in interpreter %" PRId64, task->interpreter);
        fputs(", each above those that it awaits:\n", writer->stream);
    }
    forest->last_root = task;
    fputs(remark, writer->stream);
    write_tree(writer, forest, root);
}

enum status dump_write_tasks(struct dump_writer *writer, const struct look *look) {
    struct forest forest;
    enum status status = forest_init(&forest, look);
    for (size_t i = 0; i < look->task_count && status == STATUS_OK; i++)
        if (look->tasks[i].awaited_by_count == 0)
            write_root(writer, &forest, i, "");
    /* What is left has an awaiter each and still no root: they go round in a ring. */
    for (size_t i = 0; i < look->task_count && status == STATUS_OK; i++)
        if (!forest.written[i])
            write_root(writer, &forest, i, "    (these await each other in a ring)\n");
    if (look->task_count == 0)
        fputs("\nNo asyncio tasks.\n", writer->stream);
    if (!look->tasks_complete)
        fprintf(writer->stream, "\n%s(some tasks are missing: they changed while they were read)%s\n",
                writer->palette->warning, writer->palette->end);
    forest_release(&forest);
    return status;
}
