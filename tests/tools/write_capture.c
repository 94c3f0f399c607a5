/* Writes the capture FILE from records on standard input, one JSON object a line, of the form that show_capture and
 * tests/capture_reader.py print. A first line may be {"record": "options", "tick_ns": …, "chunk_bytes": …,
 * "max_stacks": …}; {"record": "end"} closes the capture, and without it the writer dies. Threads are to be numbered
 * from 1 in the order of their first records. */
#include "capture/writer.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TEXTS = 64 };

static _Noreturn void fail(const char *why) {
    (void)fprintf(stderr, "write_capture: %s\n", why);
    exit(1);
}

static void check(enum status status) {
    if (status != STATUS_OK)
        fail(status_name(status));
}

static uint64_t number(const json_t *record, const char *key) {
    return (uint64_t)json_integer_value(json_object_get(record, key));
}

static struct capture_text text_of(const json_t *string) {
    return (struct capture_text){json_string_value(string), json_string_length(string)};
}

static size_t texts_of(const json_t *array, struct capture_text *texts) {
    size_t count = json_array_size(array);
    for (size_t i = 0; i < count && i < MAX_TEXTS; i++)
        texts[i] = text_of(json_array_get(array, i));
    if (count > MAX_TEXTS)
        fail("too many texts");
    return count;
}

static int32_t position(const json_t *value) {
    return json_is_integer(value) ? (int32_t)json_integer_value(value) : -1;
}

static uint32_t intern_string(struct capture_writer *writer, const json_t *string) {
    uint32_t id = 0;
    check(capture_intern_string(writer, json_string_value(string), json_string_length(string), &id));
    return id;
}

static uint32_t intern_stack(struct capture_writer *writer, const json_t *frames) {
    uint32_t stack = 0;
    for (size_t i = 0; i < json_array_size(frames); i++) {
        const json_t *frame = json_array_get(frames, i);
        const json_t *positions = json_object_get(frame, "position");
        uint32_t id = 0;
        struct capture_frame described = {
            .kind = (enum capture_frame_kind)number(frame, "kind"),
            .function = intern_string(writer, json_object_get(frame, "function")),
            .qualname = intern_string(writer, json_object_get(frame, "qualname")),
            .file = intern_string(writer, json_object_get(frame, "file")),
            .line = position(json_array_get(positions, 0)),
            .end_line = position(json_array_get(positions, 1)),
            .column = position(json_array_get(positions, 2)),
            .end_column = position(json_array_get(positions, 3)),
            .first_line = position(json_object_get(frame, "first_line")),
        };
        check(capture_intern_frame(writer, &described, &id));
        check(capture_intern_stack(writer, stack, id, &stack));
    }
    return stack;
}

static void write_process(struct capture_writer *writer, const json_t *record) {
    struct capture_text command[MAX_TEXTS];
    struct capture_text libraries[MAX_TEXTS];
    struct capture_process process = {
        .process = (uint32_t)number(record, "number"),
        .pid = (int32_t)number(record, "pid"),
        .parent_pid = (int32_t)number(record, "parent_pid"),
        .python_version = (uint32_t)number(record, "version"),
        .free_threaded = number(record, "flags") & 1,
        .mode = (enum capture_mode)number(record, "mode"),
        .origin = (enum capture_origin)number(record, "origin"),
        .rate_millihertz = number(record, "rate_mhz"),
        .start_unix_ns = number(record, "start_unix_ns"),
        .start_ns = number(record, "start_ns"),
        .command = command,
        .command_count = texts_of(json_object_get(record, "command"), command),
        .libraries = libraries,
        .library_count = texts_of(json_object_get(record, "libraries"), libraries),
    };
    check(capture_add_process(writer, &process));
}

static void write_thread(struct capture_writer *writer, const json_t *record) {
    uint32_t id = (uint32_t)number(record, "thread");
    struct capture_thread thread = {
        .process = (uint32_t)number(record, "process"),
        .native_id = number(record, "native_id"),
        .thread_id = number(record, "thread_id"),
        .interpreter = (int64_t)number(record, "interpreter"),
        .name = text_of(json_object_get(record, "name")),
    };
    static uint32_t last_id;
    if (id > last_id) {
        check(capture_add_thread(writer, &thread, &last_id));
        if (last_id != id)
            fail("threads are not numbered in their order");
    } else {
        check(capture_update_thread(writer, id, &thread));
    }
}

static void write_sample(struct capture_writer *writer, const json_t *record) {
    struct capture_sample sample = {
        .thread = (uint32_t)number(record, "thread"),
        .stack = intern_stack(writer, json_object_get(record, "stack")),
        .time_ns = number(record, "time_ns"),
        .weight_ns = number(record, "weight_ns"),
        .run = (enum capture_run)number(record, "run"),
        .gil = (enum capture_gil)number(record, "gil"),
        .collecting = json_is_true(json_object_get(record, "collecting")),
    };
    check(capture_write_sample(writer, &sample));
}

static void write_event(struct capture_writer *writer, json_t *record) {
    struct capture_value values[CAPTURE_EVENT_VALUES];
    struct capture_event event = {
        .thread = (uint32_t)number(record, "thread"),
        .stack = intern_stack(writer, json_object_get(record, "stack")),
        .time_ns = number(record, "time_ns"),
        .values = values,
    };
    const char *key = NULL;
    json_t *amount = NULL;
    json_object_foreach(json_object_get(record, "values"), key, amount) values[event.value_count++] =
        (struct capture_value){(uint32_t)strtoul(key, NULL, 10), (uint64_t)json_integer_value(amount)};
    check(capture_write_event(writer, &event));
}

static void write_change(struct capture_writer *writer, json_t *record) {
    struct capture_difference values[CAPTURE_EVENT_VALUES];
    struct capture_change change = {
        .process = (uint32_t)number(record, "number"),
        .stack = intern_stack(writer, json_object_get(record, "stack")),
        .time_ns = number(record, "time_ns"),
        .values = values,
    };
    const char *key = NULL;
    json_t *amount = NULL;
    json_object_foreach(json_object_get(record, "values"), key, amount) values[change.value_count++] =
        (struct capture_difference){(uint32_t)strtoul(key, NULL, 10), json_integer_value(amount)};
    check(capture_write_change(writer, &change));
}

static void write_footprint(struct capture_writer *writer, const json_t *record) {
    struct capture_point points[CAPTURE_FOOTPRINT_POINTS];
    const json_t *array = json_object_get(record, "points");
    struct capture_footprint footprint = {
        .process = (uint32_t)number(record, "number"),
        .time_ns = number(record, "time_ns"),
        .footprint_bytes = number(record, "footprint_bytes"),
        .peak_bytes = number(record, "peak_bytes"),
        .peak_ns = number(record, "peak_ns"),
        .inherited_bytes = number(record, "inherited_bytes"),
        .stride_bytes = number(record, "stride_bytes"),
        .lost_records = number(record, "lost_records"),
        .resident_bytes = number(record, "resident_bytes"),
        .exec_count = number(record, "execs"),
        .points = points,
    };
    for (; footprint.point_count < json_array_size(array); footprint.point_count++) {
        const json_t *point = json_array_get(array, footprint.point_count);
        points[footprint.point_count] = (struct capture_point){(uint64_t)json_integer_value(json_array_get(point, 0)),
                                                               (uint64_t)json_integer_value(json_array_get(point, 1))};
    }
    check(capture_write_footprint(writer, &footprint));
}

static void write_counters(struct capture_writer *writer, const json_t *record) {
    struct capture_counters counters = {number(record, "taken"), number(record, "missed"),
                                        number(record, "inconsistent"), number(record, "errors")};
    check(capture_write_counters(writer, (uint32_t)number(record, "number"), &counters));
}

static void write_record(struct capture_writer *writer, const char *kind, json_t *record) {
    if (strcmp(kind, "sample") == 0)
        write_sample(writer, record);
    else if (strcmp(kind, "event") == 0)
        write_event(writer, record);
    else if (strcmp(kind, "change") == 0)
        write_change(writer, record);
    else if (strcmp(kind, "footprint") == 0)
        write_footprint(writer, record);
    else if (strcmp(kind, "process") == 0)
        write_process(writer, record);
    else if (strcmp(kind, "process_end") == 0)
        check(capture_end_process(writer, (uint32_t)number(record, "number"), number(record, "time_ns"),
                                  (int32_t)number(record, "status")));
    else if (strcmp(kind, "counters") == 0)
        write_counters(writer, record);
    else if (strcmp(kind, "thread") == 0)
        write_thread(writer, record);
    else if (strcmp(kind, "thread_cpu") == 0)
        check(capture_write_thread_cpu(writer, (uint32_t)number(record, "thread"), number(record, "cpu_ns")));
    else if (strcmp(kind, "thread_end") == 0)
        check(capture_end_thread(writer, (uint32_t)number(record, "thread"), number(record, "time_ns")));
    else if (strcmp(kind, "fact") == 0)
        check(capture_write_fact(writer, json_string_value(json_object_get(record, "key")),
                                 json_string_value(json_object_get(record, "value"))));
    else
        fail("unknown record");
}

static struct capture_writer *open_writer(const char *path, const json_t *record) {
    struct capture_writer *writer = NULL;
    struct error error = {0};
    struct capture_writer_options options = {
        .tick_ns = number(record, "tick_ns"),
        .flush_period_ns = number(record, "flush_period_ns"),
        .chunk_bytes = number(record, "chunk_bytes"),
        .max_strings = (uint32_t)number(record, "max_strings"),
        .max_stacks = (uint32_t)number(record, "max_stacks"),
    };
    if (capture_writer_open(path, &options, &writer, &error) != STATUS_OK)
        fail(error.text);
    return writer;
}

int main(int argc, char **argv) {
    struct capture_writer *writer = NULL;
    json_error_t mistake;
    json_t *record = NULL;
    bool has_end = false;
    if (argc != 2)
        fail("usage: write_capture FILE < RECORDS");
    while (!has_end && (record = json_loadf(stdin, JSON_DISABLE_EOF_CHECK, &mistake)) != NULL) {
        const char *kind = json_string_value(json_object_get(record, "record"));
        if (writer == NULL)
            writer = open_writer(argv[1], record);
        has_end = strcmp(kind, "end") == 0;
        if (!has_end && strcmp(kind, "options") != 0)
            write_record(writer, kind, record);
        json_decref(record);
    }
    if (has_end)
        check(capture_writer_close(writer, NULL));
    else
        capture_writer_abandon(writer);
    return 0;
}
