#include "traverse.h"

#include "base/text.h"
#include "sampler/look_python.h"

#include <string.h>

void traverse_note_start(const struct traverse_start *start, uint64_t notes[MEMORY_IMAGE_NOTES]) {
    notes[0] = start->symbols.runtime;
    notes[1] = start->symbols.py_version;
    notes[2] = (uint64_t)start->symbols.minor_hint;
    notes[3] = start->asyncio_debug;
}

struct traverse_start traverse_noted_start(const uint64_t notes[MEMORY_IMAGE_NOTES]) {
    return (struct traverse_start){
        .symbols = {.runtime = notes[0], .py_version = notes[1], .minor_hint = (int)(notes[2] & 0xff)},
        .asyncio_debug = notes[3],
    };
}

/* Text of the target, with line ends and the like escaped: one line stays one line. */
static enum status put_text(struct buffer *text, const char *label, const char *content) {
    if (content == NULL)
        return STATUS_OK;
    TRY(buffer_append_format(text, " %s=", label));
    return text_append_safe(text, content, strlen(content), true);
}

static enum status put_local(struct buffer *text, const struct look_local *local) {
    TRY(buffer_append_text(text, local->argument ? "      argument" : "      local"));
    TRY(put_text(text, "name", local->name));
    TRY(put_text(text, "type", local->type));
    TRY(put_text(text, "value", local->value));
    return buffer_append_char(text, '\n');
}

static enum status put_frame(struct buffer *text, const struct look_frame *frame) {
    if (frame->status != STATUS_OK)
        return buffer_append_format(text, "    frame: %s\n", status_name(frame->status));
    TRY(buffer_append_text(text, "    frame"));
    TRY(put_text(text, "function", frame->function));
    TRY(put_text(text, "qualname", frame->qualname));
    TRY(put_text(text, "file", frame->file));
    const struct source_position *at = &frame->position;
    TRY(buffer_append_format(text, " at=%d-%d:%d-%d%s", (int)at->line, (int)at->end_line, (int)at->column,
                             (int)at->end_column, frame->collecting ? " collecting" : ""));
    if (frame->locals_status != STATUS_OK)
        TRY(buffer_append_format(text, " locals: %s", status_name(frame->locals_status)));
    TRY(buffer_append_char(text, '\n'));
    for (size_t i = 0; i < frame->local_count; i++)
        TRY(put_local(text, &frame->locals[i]));
    return STATUS_OK;
}

static enum status put_thread(struct buffer *text, const struct look_thread *thread) {
    TRY(buffer_append_format(text, "  thread %llu of interpreter %lld native_id=%llu%s%s%s%s",
                             (unsigned long long)thread->thread_id, (long long)thread->interpreter,
                             (unsigned long long)thread->native_id, thread->gil == GIL_HELD ? " holds the GIL" : "",
                             thread->collecting ? " collecting" : "", thread->consistent ? "" : " inconsistent",
                             thread->cut ? " cut" : ""));
    TRY(put_text(text, "name", thread->name));
    TRY(buffer_append_char(text, '\n'));
    for (size_t i = 0; i < thread->frame_count; i++)
        TRY(put_frame(text, &thread->frames[i]));
    return STATUS_OK;
}

static enum status put_task(struct buffer *text, const struct look_task *task) {
    static const char *const states[] = {"created", "awaiting", "running", "done"};
    TRY(buffer_append_format(text, "  task 0x%llx of interpreter %lld thread_id=%llu %s%s%s",
                             (unsigned long long)task->address, (long long)task->interpreter,
                             (unsigned long long)task->thread_id, states[task->state],
                             task->consistent ? "" : " inconsistent", task->cut ? " cut" : ""));
    TRY(put_text(text, "name", task->name));
    for (size_t i = 0; i < task->awaited_by_count; i++)
        TRY(buffer_append_format(text, "%s%zu", i == 0 ? " awaited_by=" : ",", task->awaited_by[i]));
    TRY(buffer_append_char(text, '\n'));
    for (size_t i = 0; i < task->frame_count; i++)
        TRY(put_frame(text, &task->frames[i]));
    return STATUS_OK;
}

static enum status put_look(struct buffer *text, const struct look *look) {
    char version[24];
    runtime_format_version(look->version, version);
    TRY(buffer_append_format(text, "Python %s%s%s\n", version, look->free_threaded ? " free-threaded" : "",
                             look->newer_than_known ? " newer than known" : ""));
    for (size_t i = 0; i < look->interpreter_count; i++)
        TRY(buffer_append_format(text, "interpreter %lld%s%s\n", (long long)look->interpreters[i].id,
                                 look->interpreters[i].gil_enabled ? "" : " without GIL",
                                 look->interpreters[i].collecting ? " collecting" : ""));
    for (size_t i = 0; i < look->thread_count; i++)
        TRY(put_thread(text, &look->threads[i]));
    if (!look->threads_complete)
        TRY(buffer_append_text(text, "threads: incomplete\n"));
    for (size_t i = 0; i < look->task_count; i++)
        TRY(put_task(text, &look->tasks[i]));
    if (look->tasks_error.status != STATUS_OK)
        TRY(buffer_append_format(text, "tasks: %s\n", look->tasks_error.text));
    else if (!look->tasks_complete)
        TRY(buffer_append_text(text, "tasks: incomplete\n"));
    return look->exhausted ? buffer_append_text(text, "exhausted\n") : STATUS_OK;
}

/* Memory alone knows no system. */
static enum status describe_nothing(void *context, const struct interp *interp, const struct thread_state *state,
                                    const struct thread_name *name, struct look_thread *thread) {
    (void)context, (void)interp, (void)state, (void)name, (void)thread;
    return STATUS_OK;
}

static void forget_nothing(void *context) {
    (void)context;
}

enum status traverse(struct memory *memory, const struct traverse_start *start, size_t locals_chars,
                     struct budget *budget, struct buffer *text) {
    const struct look_options options = {
        .with_locals = locals_chars > 0, .locals_chars = locals_chars, .with_tasks = true};
    const struct look_system system = {describe_nothing, forget_nothing, NULL, start->asyncio_debug};
    struct look look = {0};
    struct error error = {0};
    struct runtime runtime;
    struct memory_meter meter;
    memory_meter_init(&meter, memory, budget);
    enum status status = runtime_open(&runtime, &meter.memory, &meter.memory, &start->symbols, &error);
    if (status == STATUS_OK)
        status = look_python_take(&runtime, &options, budget, &system, &look);
    enum status put = put_look(text, &look);
    if (status != STATUS_OK && put == STATUS_OK)
        put = buffer_append_format(text, "%s: %s\n", status_name(status), error.text);
    look_free(&look);
    return status == STATUS_FAILED ? STATUS_FAILED : put;
}
