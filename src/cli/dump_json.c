/* A dump as JSON, written as it comes: looks at a thousand threads are large. */
#include "cli/dump.h"

#include "base/json_stream.h"
#include "base/text.h"
#include "cpython/runtime.h"

#include <string.h>

enum { MAX_TEXT_BYTES = 64 << 20 };

struct writer {
    struct json_stream json;
    struct buffer safe;
    bool is_complete; /* false: there was no memory for a text */
};

static bool is_utf8(const char *text, size_t size_bytes) {
    size_t at = text_plain_length(text, size_bytes);
    while (at < size_bytes) {
        uint32_t character;
        size_t length = text_decode_utf8(text + at, size_bytes - at, &character);
        if (length == 0)
            return false;
        at += length;
    }
    return true;
}

/* JSON is UTF-8 only; a command line may be any bytes. */
static void put_text(struct writer *writer, const char *text) {
    size_t size_bytes = text != NULL ? strlen(text) : 0;
    if (text == NULL) {
        json_stream_null(&writer->json);
    } else if (is_utf8(text, size_bytes)) {
        json_stream_text(&writer->json, text);
    } else {
        buffer_clear(&writer->safe);
        if (text_append_safe(&writer->safe, text, size_bytes, false) != STATUS_OK)
            writer->is_complete = false;
        json_stream_text(&writer->json, buffer_text(&writer->safe));
    }
}

static void put_key_text(struct writer *writer, const char *key, const char *text) {
    json_stream_key(&writer->json, key);
    put_text(writer, text);
}

static void put_key_boolean(struct json_stream *json, const char *key, bool value) {
    json_stream_key(json, key);
    json_stream_boolean(json, value);
}

static void put_number_or_null(struct json_stream *json, const char *key, int64_t number) {
    json_stream_key(json, key);
    if (number < 0)
        json_stream_null(json);
    else
        json_stream_integer(json, number);
}

static void put_id_or_null(struct json_stream *json, const char *key, uint64_t id, bool is_known) {
    json_stream_key(json, key);
    if (is_known)
        json_stream_unsigned(json, id);
    else
        json_stream_null(json);
}

static void put_locals(struct writer *writer, const struct look_frame *frame) {
    struct json_stream *json = &writer->json;
    json_stream_open_key(json, "locals", '[');
    for (size_t i = 0; i < frame->local_count; i++) {
        const struct look_local *local = &frame->locals[i];
        json_stream_open(json, '{');
        put_key_text(writer, "name", local->name);
        put_key_text(writer, "type", local->type);
        put_key_text(writer, "value", local->value);
        put_key_boolean(json, "argument", local->argument);
        json_stream_close(json, '}');
    }
    json_stream_close(json, ']');
}

static void put_readable_frame(struct writer *writer, const struct look_frame *frame) {
    const struct source_position *position = &frame->position;
    struct json_stream *json = &writer->json;
    put_key_text(writer, "function", frame->function);
    if (frame->qualname != NULL)
        put_key_text(writer, "qualname", frame->qualname);
    put_key_text(writer, "file", frame->file);
    put_number_or_null(json, "line", position->line);
    put_number_or_null(json, "end_line", position->end_line);
    put_number_or_null(json, "column", position->column);
    put_number_or_null(json, "end_column", position->end_column);
    if (frame->collecting)
        put_key_boolean(json, "collecting", true);
    if (frame->locals != NULL)
        put_locals(writer, frame);
    if (frame->locals_status != STATUS_OK)
        json_stream_key_text(json, "locals_error", status_name(frame->locals_status));
}

/* A frame in a line, for people and for diff. */
static void put_frames(struct writer *writer, const struct look_frame *frames, size_t count) {
    struct json_stream *json = &writer->json;
    json_stream_open_key(json, "frames", '[');
    for (size_t i = 0; i < count; i++) {
        json_stream_open(json, '{');
        if (frames[i].status != STATUS_OK)
            json_stream_key_text(json, "error", status_name(frames[i].status));
        else
            put_readable_frame(writer, &frames[i]);
        json_stream_close(json, '}');
        putc('\n', json->stream);
    }
    json_stream_close(json, ']');
}

static void put_thread(struct writer *writer, const struct look_thread *thread) {
    static const char *const gil_names[] = {[GIL_NONE] = "none", [GIL_WAITING] = "waiting", [GIL_HELD] = "held"};
    struct json_stream *json = &writer->json;
    json_stream_open(json, '{');
    put_id_or_null(json, "thread_id", thread->thread_id, thread->has_python);
    put_id_or_null(json, "native_id", thread->native_id, thread->native_id != 0);
    put_key_text(writer, "name", thread->name);
    json_stream_key_text(json, "state", thread->state == THREAD_RUNNING ? "running" : "idle");
    json_stream_key_text(json, "gil", gil_names[thread->gil]);
    put_number_or_null(json, "interpreter", thread->has_python ? thread->interpreter : -1);
    put_key_boolean(json, "collecting", thread->collecting);
    put_key_boolean(json, "consistent", thread->consistent);
    if (thread->cut)
        put_key_boolean(json, "cut", true);
    put_frames(writer, thread->frames, thread->frame_count);
    json_stream_close(json, '}');
    putc('\n', json->stream);
}

static void put_interpreters(struct json_stream *json, const struct look *look) {
    json_stream_open_key(json, "interpreters", '[');
    for (size_t i = 0; i < look->interpreter_count; i++) {
        const struct look_interpreter *interpreter = &look->interpreters[i];
        json_stream_open(json, '{');
        json_stream_key_integer(json, "id", interpreter->id);
        put_key_boolean(json, "gil_enabled", interpreter->gil_enabled);
        put_key_boolean(json, "collecting", interpreter->collecting);
        json_stream_close(json, '}');
    }
    json_stream_close(json, ']');
}

static void put_task(struct writer *writer, const struct look *look, const struct look_task *task) {
    static const char *const states[] = {
        [TASK_CREATED] = "created", [TASK_AWAITING] = "awaiting", [TASK_RUNNING] = "running", [TASK_DONE] = "done"};
    struct json_stream *json = &writer->json;
    json_stream_open(json, '{');
    put_id_or_null(json, "task_id", task->address, true);
    put_key_text(writer, "name", task->name);
    put_id_or_null(json, "thread_id", task->thread_id, task->has_thread);
    json_stream_key_integer(json, "interpreter", task->interpreter);
    json_stream_key_text(json, "state", states[task->state]);
    put_key_boolean(json, "consistent", task->consistent);
    if (task->cut)
        put_key_boolean(json, "cut", true);
    put_frames(writer, task->frames, task->frame_count);
    json_stream_open_key(json, "awaited_by", '[');
    for (size_t i = 0; i < task->awaited_by_count; i++)
        json_stream_unsigned(json, look->tasks[task->awaited_by[i]].address);
    json_stream_close(json, ']');
    json_stream_close(json, '}');
    putc('\n', json->stream);
}

static void put_head(struct writer *writer, const struct look *look) {
    char version[24];
    struct json_stream *json = &writer->json;
    runtime_format_version(look->version, version);
    json_stream_key_integer(json, "pid", look->pid);
    put_key_text(writer, "python", look->version != 0 ? version : NULL);
    put_key_boolean(json, "free_threaded", look->free_threaded);
    json_stream_open_key(json, "command", '[');
    for (char **argument = look->command; *argument != NULL; argument++)
        put_text(writer, *argument);
    json_stream_close(json, ']');
}

static void put_look(struct writer *writer, const struct look *look) {
    struct json_stream *json = &writer->json;
    json_stream_open(json, '{');
    put_head(writer, look);
    put_interpreters(json, look);
    json_stream_open_key(json, "threads", '[');
    for (size_t i = 0; i < look->thread_count; i++)
        put_thread(writer, &look->threads[i]);
    json_stream_close(json, ']');
    put_key_boolean(json, "threads_complete", look->threads_complete);
    if (look->has_tasks) {
        json_stream_open_key(json, "tasks", '[');
        for (size_t i = 0; i < look->task_count; i++)
            put_task(writer, look, &look->tasks[i]);
        json_stream_close(json, ']');
        put_key_boolean(json, "tasks_complete", look->tasks_complete);
    }
    json_stream_close(json, '}');
    putc('\n', json->stream);
}

enum status dump_write_json(const struct look *look, FILE *stream) {
    struct writer writer = {.is_complete = true};
    json_stream_init(&writer.json, stream);
    buffer_init(&writer.safe, MAX_TEXT_BYTES);
    put_look(&writer, look);
    buffer_release(&writer.safe);
    return writer.is_complete ? STATUS_OK : STATUS_FAILED;
}
