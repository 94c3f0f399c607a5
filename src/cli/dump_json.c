#include "cli/dump.h"

#include "base/text.h"
#include "cpython/runtime.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TEXT_BYTES = 64 << 20 };

/* jansson takes UTF-8 only; a command line may be any bytes. */
static json_t *text_value(const char *text) {
    if (text == NULL)
        return json_null();
    json_t *value = json_string(text);
    if (value != NULL)
        return value;
    struct buffer safe;
    buffer_init(&safe, MAX_TEXT_BYTES);
    if (text_append_safe(&safe, text, strlen(text), false) == STATUS_OK)
        value = json_string(buffer_text(&safe));
    buffer_release(&safe);
    return value;
}

static json_t *number_or_null(int64_t number) {
    return number < 0 ? json_null() : json_integer(number);
}

/* json_object_set_new and json_array_append_new take NULL, fail, and are asked no further: a document that misses
 * something must not be written, so every result is gathered. */
static void put(json_t *object, const char *key, json_t *value, bool *complete) {
    if (json_object_set_new(object, key, value) != 0)
        *complete = false;
}

static void append(json_t *array, json_t *value, bool *complete) {
    if (json_array_append_new(array, value) != 0)
        *complete = false;
}

static json_t *locals_value(const struct look_frame *frame, bool *complete) {
    json_t *locals = json_array();
    for (size_t i = 0; i < frame->local_count; i++) {
        const struct look_local *local = &frame->locals[i];
        json_t *value = json_object();
        put(value, "name", text_value(local->name), complete);
        put(value, "type", text_value(local->type), complete);
        put(value, "value", text_value(local->value), complete);
        put(value, "argument", json_boolean(local->argument), complete);
        append(locals, value, complete);
    }
    return locals;
}

static json_t *frame_value(const struct look_frame *frame, bool *complete) {
    json_t *value = json_object();
    if (frame->status != STATUS_OK) {
        put(value, "error", json_string(status_name(frame->status)), complete);
        return value;
    }
    const struct source_position *position = &frame->position;
    put(value, "function", text_value(frame->function), complete);
    if (frame->qualname != NULL)
        put(value, "qualname", text_value(frame->qualname), complete);
    put(value, "file", text_value(frame->file), complete);
    put(value, "line", number_or_null(position->line), complete);
    put(value, "end_line", number_or_null(position->end_line), complete);
    put(value, "column", number_or_null(position->column), complete);
    put(value, "end_column", number_or_null(position->end_column), complete);
    if (frame->collecting)
        put(value, "collecting", json_true(), complete);
    if (frame->locals != NULL)
        put(value, "locals", locals_value(frame, complete), complete);
    if (frame->locals_status != STATUS_OK)
        put(value, "locals_error", json_string(status_name(frame->locals_status)), complete);
    return value;
}

static json_t *thread_value(const struct look_thread *thread, bool *complete) {
    static const char *const gil_names[] = {[GIL_NONE] = "none", [GIL_WAITING] = "waiting", [GIL_HELD] = "held"};
    json_t *value = json_object();
    json_t *frames = json_array();
    bool python = thread->has_python;
    put(value, "thread_id", python ? json_integer((json_int_t)thread->thread_id) : json_null(), complete);
    put(value, "native_id", thread->native_id != 0 ? json_integer((json_int_t)thread->native_id) : json_null(),
        complete);
    put(value, "name", text_value(thread->name), complete);
    put(value, "state", json_string(thread->state == THREAD_RUNNING ? "running" : "idle"), complete);
    put(value, "gil", json_string(gil_names[thread->gil]), complete);
    put(value, "interpreter", python ? json_integer(thread->interpreter) : json_null(), complete);
    put(value, "collecting", json_boolean(thread->collecting), complete);
    put(value, "consistent", json_boolean(thread->consistent), complete);
    if (thread->cut)
        put(value, "cut", json_true(), complete);
    for (size_t i = 0; i < thread->frame_count; i++)
        append(frames, frame_value(&thread->frames[i], complete), complete);
    put(value, "frames", frames, complete);
    return value;
}

static json_t *interpreters_value(const struct look *look, bool *complete) {
    json_t *interpreters = json_array();
    for (size_t i = 0; i < look->interpreter_count; i++) {
        const struct look_interpreter *interpreter = &look->interpreters[i];
        json_t *value = json_object();
        put(value, "id", json_integer(interpreter->id), complete);
        put(value, "gil_enabled", json_boolean(interpreter->gil_enabled), complete);
        put(value, "collecting", json_boolean(interpreter->collecting), complete);
        append(interpreters, value, complete);
    }
    return interpreters;
}

static json_t *task_value(const struct look *look, const struct look_task *task, bool *complete) {
    static const char *const states[] = {
        [TASK_CREATED] = "created", [TASK_AWAITING] = "awaiting", [TASK_RUNNING] = "running", [TASK_DONE] = "done"};
    json_t *value = json_object();
    json_t *frames = json_array();
    json_t *awaited_by = json_array();
    put(value, "task_id", json_integer((json_int_t)task->address), complete);
    put(value, "name", text_value(task->name), complete);
    put(value, "thread_id", task->has_thread ? json_integer((json_int_t)task->thread_id) : json_null(), complete);
    put(value, "interpreter", json_integer(task->interpreter), complete);
    put(value, "state", json_string(states[task->state]), complete);
    put(value, "consistent", json_boolean(task->consistent), complete);
    if (task->cut)
        put(value, "cut", json_true(), complete);
    for (size_t i = 0; i < task->frame_count; i++)
        append(frames, frame_value(&task->frames[i], complete), complete);
    for (size_t i = 0; i < task->awaited_by_count; i++)
        append(awaited_by, json_integer((json_int_t)look->tasks[task->awaited_by[i]].address), complete);
    put(value, "frames", frames, complete);
    put(value, "awaited_by", awaited_by, complete);
    return value;
}

static json_t *tasks_value(const struct look *look, bool *complete) {
    json_t *tasks = json_array();
    for (size_t i = 0; i < look->task_count; i++)
        append(tasks, task_value(look, &look->tasks[i], complete), complete);
    return tasks;
}

static json_t *look_value(const struct look *look, bool *complete) {
    char version[24];
    runtime_format_version(look->version, version);
    json_t *value = json_object();
    json_t *command = json_array();
    json_t *threads = json_array();
    for (char **argument = look->command; *argument != NULL; argument++)
        append(command, text_value(*argument), complete);
    for (size_t i = 0; i < look->thread_count; i++)
        append(threads, thread_value(&look->threads[i], complete), complete);
    put(value, "pid", json_integer(look->pid), complete);
    put(value, "python", look->version != 0 ? json_string(version) : json_null(), complete);
    put(value, "free_threaded", json_boolean(look->free_threaded), complete);
    put(value, "command", command, complete);
    put(value, "interpreters", interpreters_value(look, complete), complete);
    put(value, "threads", threads, complete);
    if (look->has_tasks) {
        put(value, "tasks", tasks_value(look, complete), complete);
        put(value, "tasks_complete", json_boolean(look->tasks_complete), complete);
    }
    return value;
}

enum status dump_write_json(const struct look *look, FILE *stream) {
    bool complete = true;
    json_t *value = look_value(look, &complete);
    if (complete && value != NULL) {
        /* A failed write is noticed when the output is finished. */
        (void)json_dumpf(value, stream, JSON_INDENT(1));
        fputc('\n', stream);
    }
    bool written = complete && value != NULL;
    json_decref(value);
    return written ? STATUS_OK : STATUS_FAILED;
}
