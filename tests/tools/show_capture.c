/* Prints what strobe's own reader tells of the capture FILE, one JSON object a line, of the form that write_capture
 * takes. Exit status 6 when the capture is damaged. */
#include "capture/reader.h"

#include <jansson.h>
#include <stdlib.h>

static _Noreturn void fail(const char *why) {
    (void)fprintf(stderr, "show_capture: %s\n", why);
    exit(1);
}

/* Arrays by id. */
struct tables {
    json_t *strings;
    json_t *frames;
    json_t *stacks;
};

static enum status show(json_t *record) {
    if (record == NULL || json_dumpf(record, stdout, JSON_COMPACT) != 0)
        fail("cannot print a record");
    (void)putchar('\n');
    json_decref(record);
    return STATUS_OK;
}

static json_t *text_value(struct capture_text text) {
    return json_stringn(text.bytes, text.size_bytes);
}

static json_t *text_array(const struct capture_text *texts, size_t count) {
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(array, text_value(texts[i]));
    return array;
}

static void release_tables(struct tables *tables) {
    json_decref(tables->strings);
    json_decref(tables->frames);
    json_decref(tables->stacks);
}

static enum status on_epoch(void *context, uint32_t epoch) {
    struct tables *tables = context;
    (void)epoch;
    release_tables(tables);
    tables->strings = json_pack("[n]");
    tables->frames = json_pack("[n]");
    tables->stacks = json_pack("[[]]");
    return STATUS_OK;
}

static enum status on_fact(void *context, struct capture_text key, struct capture_text value) {
    (void)context;
    return show(json_pack("{ss so so}", "record", "fact", "key", text_value(key), "value", text_value(value)));
}

static enum status on_string(void *context, uint32_t id, struct capture_text text) {
    (void)id;
    return json_array_append_new(((struct tables *)context)->strings, text_value(text)) == 0 ? STATUS_OK
                                                                                             : STATUS_FAILED;
}

static json_t *position(int32_t value) {
    return value < 0 ? json_null() : json_integer(value);
}

static enum status on_frame(void *context, uint32_t id, const struct capture_frame *frame) {
    struct tables *tables = context;
    (void)id;
    json_t *shown = json_pack("{si sO sO sO s[oooo] so}", "kind", (int)frame->kind, "function",
                              json_array_get(tables->strings, frame->function), "qualname",
                              json_array_get(tables->strings, frame->qualname), "file",
                              json_array_get(tables->strings, frame->file), "position", position(frame->line),
                              position(frame->end_line), position(frame->column), position(frame->end_column),
                              "first_line", position(frame->first_line));
    return json_array_append_new(tables->frames, shown) == 0 ? STATUS_OK : STATUS_FAILED;
}

static enum status on_stack(void *context, uint32_t id, uint32_t parent, uint32_t frame) {
    struct tables *tables = context;
    (void)id;
    json_t *path = json_copy(json_array_get(tables->stacks, parent));
    (void)json_array_append(path, json_array_get(tables->frames, frame));
    return json_array_append_new(tables->stacks, path) == 0 ? STATUS_OK : STATUS_FAILED;
}

static enum status on_process(void *context, const struct capture_process *process) {
    (void)context;
    return show(json_pack(
        "{ss sI sI sI sI sI sI sI sI sI sI so so}", "record", "process", "number", (json_int_t)process->process, "pid",
        (json_int_t)process->pid, "parent_pid", (json_int_t)process->parent_pid, "version",
        (json_int_t)process->python_version, "flags", (json_int_t)process->free_threaded, "mode",
        (json_int_t)process->mode, "origin", (json_int_t)process->origin, "rate_mhz",
        (json_int_t)process->rate_millihertz, "start_unix_ns", (json_int_t)process->start_unix_ns, "start_ns",
        (json_int_t)process->start_ns, "command", text_array(process->command, process->command_count), "libraries",
        text_array(process->libraries, process->library_count)));
}

static enum status on_process_end(void *context, uint32_t process, uint64_t time_ns, int32_t wait_status) {
    (void)context;
    return show(json_pack("{ss sI sI si}", "record", "process_end", "number", (json_int_t)process, "time_ns",
                          (json_int_t)time_ns, "status", wait_status));
}

static enum status on_counters(void *context, uint32_t process, const struct capture_counters *counters) {
    (void)context;
    return show(json_pack("{ss sI sI sI sI sI}", "record", "counters", "number", (json_int_t)process, "taken",
                          (json_int_t)counters->taken, "missed", (json_int_t)counters->missed, "inconsistent",
                          (json_int_t)counters->inconsistent, "errors", (json_int_t)counters->errors));
}

static enum status on_thread(void *context, uint32_t id, const struct capture_thread *thread) {
    (void)context;
    return show(json_pack("{ss sI sI sI sI sI so}", "record", "thread", "thread", (json_int_t)id, "process",
                          (json_int_t)thread->process, "native_id", (json_int_t)thread->native_id, "thread_id",
                          (json_int_t)thread->thread_id, "interpreter", (json_int_t)thread->interpreter, "name",
                          text_value(thread->name)));
}

static enum status on_thread_cpu(void *context, uint32_t id, uint64_t cpu_ns) {
    (void)context;
    return show(
        json_pack("{ss sI sI}", "record", "thread_cpu", "thread", (json_int_t)id, "cpu_ns", (json_int_t)cpu_ns));
}

static enum status on_thread_end(void *context, uint32_t id, uint64_t time_ns) {
    (void)context;
    return show(
        json_pack("{ss sI sI}", "record", "thread_end", "thread", (json_int_t)id, "time_ns", (json_int_t)time_ns));
}

static enum status on_sample(void *context, const struct capture_sample *sample) {
    return show(json_pack("{ss sI sI sI si si sb sO}", "record", "sample", "thread", (json_int_t)sample->thread,
                          "time_ns", (json_int_t)sample->time_ns, "weight_ns", (json_int_t)sample->weight_ns, "run",
                          (int)sample->run, "gil", (int)sample->gil, "collecting", (int)sample->collecting, "stack",
                          json_array_get(((struct tables *)context)->stacks, sample->stack)));
}

static enum status on_event(void *context, const struct capture_event *event) {
    json_t *values = json_object();
    for (size_t i = 0; i < event->value_count; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "%u", event->values[i].measure);
        (void)json_object_set_new(values, key, json_integer((json_int_t)event->values[i].amount));
    }
    return show(json_pack("{ss sI sI so sO}", "record", "event", "thread", (json_int_t)event->thread, "time_ns",
                          (json_int_t)event->time_ns, "values", values, "stack",
                          json_array_get(((struct tables *)context)->stacks, event->stack)));
}

static enum status on_change(void *context, const struct capture_change *change) {
    json_t *values = json_object();
    for (size_t i = 0; i < change->value_count; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "%u", change->values[i].measure);
        (void)json_object_set_new(values, key, json_integer(change->values[i].amount));
    }
    return show(json_pack("{ss sI sI so sO}", "record", "change", "number", (json_int_t)change->process, "time_ns",
                          (json_int_t)change->time_ns, "values", values, "stack",
                          json_array_get(((struct tables *)context)->stacks, change->stack)));
}

static enum status on_footprint(void *context, const struct capture_footprint *footprint) {
    json_t *points = json_array();
    (void)context;
    for (size_t i = 0; i < footprint->point_count; i++)
        (void)json_array_append_new(points, json_pack("[II]", (json_int_t)footprint->points[i].time_ns,
                                                      (json_int_t)footprint->points[i].bytes));
    return show(json_pack(
        "{ss sI sI sI sI sI sI sI sI sI sI so}", "record", "footprint", "number", (json_int_t)footprint->process,
        "time_ns", (json_int_t)footprint->time_ns, "footprint_bytes", (json_int_t)footprint->footprint_bytes,
        "peak_bytes", (json_int_t)footprint->peak_bytes, "peak_ns", (json_int_t)footprint->peak_ns, "inherited_bytes",
        (json_int_t)footprint->inherited_bytes, "stride_bytes", (json_int_t)footprint->stride_bytes, "lost_records",
        (json_int_t)footprint->lost_records, "resident_bytes", (json_int_t)footprint->resident_bytes, "execs",
        (json_int_t)footprint->exec_count, "points", points));
}

int main(int argc, char **argv) {
    struct tables tables = {0};
    struct error error = {0};
    const struct capture_visitor visitor = {
        .context = &tables,
        .epoch = on_epoch,
        .fact = on_fact,
        .string = on_string,
        .frame = on_frame,
        .stack = on_stack,
        .process = on_process,
        .process_end = on_process_end,
        .counters = on_counters,
        .thread = on_thread,
        .thread_cpu = on_thread_cpu,
        .thread_end = on_thread_end,
        .sample = on_sample,
        .event = on_event,
        .change = on_change,
        .footprint = on_footprint,
    };
    if (argc != 2)
        fail("usage: show_capture FILE");
    enum status status = capture_read(argv[1], &visitor, NULL, &error);
    release_tables(&tables);
    if (status != STATUS_OK)
        (void)fprintf(stderr, "show_capture: %s\n", error.text);
    return status == STATUS_OK ? 0 : status == STATUS_DAMAGED ? 6 : 1;
}
