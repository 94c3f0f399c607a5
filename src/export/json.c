/* strobe's own JSON: docs/report.schema.json says what is in it. A measure that was not taken is absent. */
#include "base/json_stream.h"
#include "export/export.h"
#include "export/names.h"

#include <string.h>
#include <sys/wait.h>

/* Where a measure stands in a row. */
struct column {
    enum measure measure;
    const char *self;  /* key; NULL: not shown alone */
    const char *total; /* key; NULL: not shown */
    const char *part;  /* key in "cpu_s" */
};

static const struct column COLUMNS[] = {
    {MEASURE_SAMPLES, "samples", "total_samples", NULL},
    {MEASURE_WALL_NS, "wall_s", "total_wall_s", NULL},
    {MEASURE_CPU_NS, "self_cpu_s", "total_cpu_s", NULL},
    {MEASURE_CPU_PYTHON_NS, NULL, NULL, "python"},
    {MEASURE_CPU_NATIVE_NS, NULL, NULL, "native"},
    {MEASURE_CPU_KERNEL_NS, NULL, NULL, "kernel"},
    {MEASURE_WAIT_NS, "wait_s", "total_wait_s", NULL},
    {MEASURE_GIL_WAIT_NS, "gil_wait_s", "total_gil_wait_s", NULL},
    {MEASURE_ALLOC_BYTES, "alloc_bytes", "total_alloc_bytes", NULL},
    {MEASURE_ALLOC_COUNT, "alloc_count", "total_alloc_count", NULL},
    {MEASURE_PEAK_BYTES, "peak_bytes", "total_peak_bytes", NULL},
    {MEASURE_LIVE_BYTES, "live_bytes", "total_live_bytes", NULL},
    {MEASURE_PYTHON_BYTES, "python_bytes", "total_python_bytes", NULL},
    {MEASURE_COPY_BYTES, "copy_bytes", "total_copy_bytes", NULL},
    {MEASURE_GPU_NS, "gpu_s", "total_gpu_s", NULL},
    {MEASURE_GPU_BYTES, "gpu_bytes", "total_gpu_bytes", NULL},
    {MEASURE_TEMPORARY_BYTES, "temporary_bytes", "total_temporary_bytes", NULL},
    {MEASURE_LIVE_COUNT, "live_count", "total_live_count", NULL},
};
/* How far a sampled measure may be from the truth, in 19 of 20 cases. */
static const struct column MARGINS[] = {
    {MEASURE_ALLOC_BYTES, "alloc_bytes_margin", NULL, NULL},
    {MEASURE_PEAK_BYTES, "peak_bytes_margin", NULL, NULL},
    {MEASURE_LIVE_BYTES, "live_bytes_margin", NULL, NULL},
    {MEASURE_COPY_BYTES, "copy_bytes_margin", NULL, NULL},
};
enum { COLUMN_COUNT = sizeof COLUMNS / sizeof COLUMNS[0], MARGIN_COUNT = sizeof MARGINS / sizeof MARGINS[0] };
enum { NS_DECIMALS = 9, MILLI_DECIMALS = 3 };

struct writer {
    struct json_stream json;
    const struct profile *profile;
    struct attribution attribution;
};

/* ------------------------------------------------------------------------------------------------ values ------ */

static void put_seconds(struct json_stream *json, const char *key, uint64_t ns) {
    json_stream_key(json, key);
    json_stream_decimal(json, ns, NS_DECIMALS);
}

static void put_amount(struct json_stream *json, const char *key, enum measure measure, uint64_t amount) {
    json_stream_key(json, key);
    json_stream_decimal(json, amount, measure_unit(measure) == UNIT_NS ? NS_DECIMALS : 0);
}

static void put_number_or_null(struct json_stream *json, const char *key, int64_t number, int64_t least) {
    json_stream_key(json, key);
    if (number >= least)
        json_stream_integer(json, number);
    else
        json_stream_null(json);
}

static void put_text_or_null(struct json_stream *json, const char *key, const char *text) {
    json_stream_key(json, key);
    if (text[0] != '\0')
        json_stream_text(json, text);
    else
        json_stream_null(json);
}

static bool is_taken(uint32_t taken, enum measure measure) {
    return (taken >> measure & 1) != 0;
}

static void put_cpu_parts(struct writer *writer, uint32_t taken, const uint64_t *self) {
    bool is_open = false;
    for (size_t i = 0; i < COLUMN_COUNT; i++) {
        if (COLUMNS[i].part == NULL || !is_taken(taken, COLUMNS[i].measure))
            continue;
        if (!is_open)
            json_stream_open_key(&writer->json, "cpu_s", '{');
        is_open = true;
        put_amount(&writer->json, COLUMNS[i].part, COLUMNS[i].measure, self[COLUMNS[i].measure]);
    }
    if (is_open)
        json_stream_close(&writer->json, '}');
}

static void put_margins(struct writer *writer, const uint64_t *self) {
    for (size_t i = 0; i < MARGIN_COUNT; i++) {
        uint64_t margin = profile_margin(self, MARGINS[i].measure);
        if (margin > 0)
            put_amount(&writer->json, MARGINS[i].self, MARGINS[i].measure, margin);
    }
}

/* `taken`: bit by measure. */
static void put_measures(struct writer *writer, uint32_t taken, const uint64_t *self, const uint64_t *total) {
    put_cpu_parts(writer, taken, self);
    for (size_t i = 0; i < COLUMN_COUNT; i++) {
        const struct column *column = &COLUMNS[i];
        if (!is_taken(taken, column->measure))
            continue;
        if (column->self != NULL)
            put_amount(&writer->json, column->self, column->measure, self[column->measure]);
        if (column->total != NULL && total != NULL)
            put_amount(&writer->json, column->total, column->measure, total[column->measure]);
    }
    put_margins(writer, self);
}

/* Rows of a list stand in lines of their own, for people and for diff. */
static void open_row(struct json_stream *json) {
    json_stream_open(json, '{');
}

static void close_row(struct json_stream *json) {
    json_stream_close(json, '}');
    putc('\n', json->stream);
}

/* ------------------------------------------------------------------------------------------------ lists ------- */

static void put_natives(struct writer *writer, const struct attribute_native *natives, size_t count) {
    for (size_t i = 0; i < count; i++) {
        json_stream_open(&writer->json, '{');
        put_text_or_null(&writer->json, "function", natives[i].function);
        json_stream_key_text(&writer->json, "library", natives[i].library);
        put_measures(writer, natives[i].taken, natives[i].self, NULL);
        json_stream_close(&writer->json, '}');
    }
}

static void put_line(struct writer *writer, const struct attribute_row *row) {
    struct json_stream *json = &writer->json;
    size_t count = 0;
    const struct attribute_native *natives = attribution_natives_of(&writer->attribution, row->file, row->line, &count);
    open_row(json);
    put_number_or_null(json, "line", row->line, 1);
    json_stream_key_text(json, "function", row->function);
    json_stream_key_text(json, "qualname", row->qualname);
    put_measures(writer, row->taken, row->self, row->total);
    if (count > 0) {
        json_stream_open_key(json, "natives", '[');
        put_natives(writer, natives, count);
        json_stream_close(json, ']');
    }
    close_row(json);
}

static void put_files(struct writer *writer) {
    const struct attribution *attribution = &writer->attribution;
    struct json_stream *json = &writer->json;
    json_stream_open_key(json, "files", '[');
    for (size_t i = 0; i < attribution->line_count; i++) {
        const struct attribute_row *row = &attribution->lines[i];
        if (i == 0 || strcmp(row->file, row[-1].file) != 0) {
            json_stream_open(json, '{');
            json_stream_key_text(json, "path", row->file);
            json_stream_open_key(json, "lines", '[');
        }
        put_line(writer, row);
        if (i + 1 == attribution->line_count || strcmp(row->file, row[1].file) != 0) {
            json_stream_close(json, ']');
            json_stream_close(json, '}');
        }
    }
    json_stream_close(json, ']');
}

static void put_functions(struct writer *writer) {
    struct json_stream *json = &writer->json;
    json_stream_open_key(json, "functions", '[');
    for (size_t i = 0; i < writer->attribution.function_count; i++) {
        const struct attribute_row *row = &writer->attribution.functions[i];
        open_row(json);
        json_stream_key_text(json, "path", row->file);
        json_stream_key_text(json, "function", row->function);
        json_stream_key_text(json, "qualname", row->qualname);
        put_number_or_null(json, "line", row->first_line, 1);
        put_measures(writer, row->taken, row->self, row->total);
        close_row(json);
    }
    json_stream_close(json, ']');
}

static void put_threads(struct writer *writer) {
    struct json_stream *json = &writer->json;
    json_stream_open_key(json, "threads", '[');
    for (size_t i = 0; i < writer->profile->thread_count; i++) {
        const struct profile_thread *thread = &writer->profile->threads[i];
        open_row(json);
        json_stream_key_integer(json, "pid", writer->profile->processes[thread->process].pid);
        put_number_or_null(json, "native_id", (int64_t)thread->native_id, 1);
        put_text_or_null(json, "name", thread->name);
        if (thread->has_cpu)
            put_seconds(json, "cpu_s", thread->cpu_ns);
        json_stream_open_key(json, "sampled", '{');
        put_measures(writer, writer->profile->processes[thread->process].taken,
                     attribute_share(&writer->attribution.threads, i), NULL);
        json_stream_close(json, '}');
        close_row(json);
    }
    json_stream_close(json, ']');
}

/* ------------------------------------------------------------------------------------------------ processes --- */

static void put_counters(struct json_stream *json, const struct capture_counters *counters) {
    json_stream_open_key(json, "samples", '{');
    json_stream_key_integer(json, "taken", (int64_t)counters->taken);
    json_stream_key_integer(json, "missed", (int64_t)counters->missed);
    json_stream_key_integer(json, "inconsistent", (int64_t)counters->inconsistent);
    json_stream_key_integer(json, "errors", (int64_t)counters->errors);
    json_stream_close(json, '}');
}

/* What a process is: at the top for the one that strobe was asked for, and in "processes" for each. */
static void put_process(struct json_stream *json, const struct profile_process *process) {
    static const char *const modes[] = {
        [CAPTURE_MODE_WALL] = "wall", [CAPTURE_MODE_CPU] = "cpu", [CAPTURE_MODE_GIL] = "gil"};
    char version[NAME_VERSION_BYTES];
    char time[NAME_TIME_BYTES];
    name_format_version(process->python_version, version);
    name_format_time(process->start_unix_ns, time);
    json_stream_open_key(json, "command", '[');
    for (size_t i = 0; i < process->command_count; i++)
        json_stream_text(json, process->command[i]);
    json_stream_close(json, ']');
    json_stream_key_integer(json, "pid", process->pid);
    put_text_or_null(json, "python", version);
    json_stream_key(json, "free_threaded");
    json_stream_boolean(json, process->free_threaded);
    json_stream_key_text(json, "mode", process->origin == CAPTURE_ORIGIN_RUN ? "run" : "attach");
    json_stream_key_text(json, "clock", modes[process->mode]);
    json_stream_key_text(json, "start", time);
    json_stream_key(json, "rate_hz");
    json_stream_decimal(json, (uint64_t)(process->rate_hz * 1000 + 0.5), MILLI_DECIMALS);
}

/* How it ended, where that is known. */
static void put_end(struct json_stream *json, const struct profile_process *process) {
    if (!process->ended)
        return;
    if (WIFSIGNALED(process->wait_status))
        json_stream_key_integer(json, "signal", WTERMSIG(process->wait_status));
    else
        json_stream_key_integer(json, "exit_status", WEXITSTATUS(process->wait_status));
}

static void put_thousandths(struct json_stream *json, const char *key, double number) {
    json_stream_key(json, key);
    json_stream_decimal(json, number < 1e15 ? (uint64_t)(number * 1000 + 0.5) : UINT64_MAX, MILLI_DECIMALS);
}

static void put_leaks(struct writer *writer, uint32_t process) {
    struct json_stream *json = &writer->json;
    const struct line_memory *memory = &writer->attribution.memory;
    json_stream_open_key(json, "leaks", '[');
    for (size_t i = 0; i < memory->leak_count; i++) {
        const struct leak *leak = &memory->leaks[i];
        if (leak->process != process)
            continue;
        json_stream_open(json, '{');
        json_stream_key_text(json, "path", leak->file);
        put_number_or_null(json, "line", leak->line, 1);
        json_stream_key_text(json, "function", leak->function);
        put_thousandths(json, "likelihood", leak->verdict.likelihood);
        put_thousandths(json, "bytes_per_s", leak->verdict.bytes_per_s);
        put_thousandths(json, "age_s", leak->verdict.age_s);
        json_stream_key_integer(json, "live_bytes", (int64_t)leak->live_bytes);
        json_stream_key_integer(json, "survivors", (int64_t)leak->survivors);
        json_stream_key_integer(json, "rises", (int64_t)leak->verdict.rises);
        json_stream_close(json, '}');
    }
    json_stream_close(json, ']');
}

static void put_timeline(struct json_stream *json, const struct series *timeline) {
    json_stream_open_key(json, "timeline", '[');
    for (size_t i = 0; i < timeline->count; i++) {
        json_stream_open(json, '[');
        json_stream_decimal(json, timeline->points[i].time_ns, NS_DECIMALS);
        json_stream_integer(json, (int64_t)timeline->points[i].value);
        json_stream_close(json, ']');
    }
    json_stream_close(json, ']');
}

/* What the lines that held most held over time. */
static void put_held_lines(struct writer *writer, uint32_t process) {
    struct json_stream *json = &writer->json;
    const struct line_memory *memory = &writer->attribution.memory;
    json_stream_open_key(json, "lines", '[');
    for (size_t i = 0; i < memory->held_count; i++) {
        const struct held_line *held = &memory->held[i];
        if (held->process != process)
            continue;
        json_stream_open(json, '{');
        json_stream_key_text(json, "path", held->file);
        put_number_or_null(json, "line", held->line, 1);
        json_stream_key_text(json, "function", held->function);
        json_stream_key_integer(json, "most_bytes", (int64_t)held->most_bytes);
        put_timeline(json, &held->timeline);
        json_stream_close(json, '}');
    }
    json_stream_close(json, ']');
}

static void put_memory(struct writer *writer, uint32_t process) {
    struct json_stream *json = &writer->json;
    const struct profile_memory *memory = &writer->profile->processes[process].memory;
    if (!memory->is_taken)
        return;
    json_stream_open_key(json, "memory", '{');
    json_stream_key_integer(json, "peak_bytes", (int64_t)memory->peak_bytes);
    put_seconds(json, "peak_s", memory->peak_ns);
    json_stream_key_integer(json, "end_bytes", (int64_t)memory->footprint_bytes);
    json_stream_key_integer(json, "inherited_bytes", (int64_t)memory->inherited_bytes);
    json_stream_key_integer(json, "stride_bytes", (int64_t)memory->stride_bytes);
    json_stream_key_integer(json, "lost_records", (int64_t)memory->lost_records);
    if (memory->resident_bytes > 0)
        json_stream_key_integer(json, "resident_bytes", (int64_t)memory->resident_bytes);
    put_timeline(json, &memory->timeline);
    put_held_lines(writer, process);
    put_leaks(writer, process);
    json_stream_close(json, '}');
}

static void put_processes(struct writer *writer) {
    struct json_stream *json = &writer->json;
    json_stream_open_key(json, "processes", '[');
    for (size_t i = 0; i < writer->profile->process_count; i++) {
        const struct profile_process *process = &writer->profile->processes[i];
        open_row(json);
        put_process(json, process);
        put_number_or_null(json, "parent_pid", process->parent_pid, 1);
        put_end(json, process);
        put_seconds(json, "elapsed_s", process->elapsed_ns);
        put_counters(json, &process->counters);
        json_stream_open_key(json, "sampled", '{');
        put_measures(writer, process->taken, attribute_share(&writer->attribution.processes, i), NULL);
        json_stream_close(json, '}');
        put_memory(writer, (uint32_t)i);
        close_row(json);
    }
    json_stream_close(json, ']');
}

static void put_report(struct writer *writer) {
    struct json_stream *json = &writer->json;
    json_stream_open(json, '{');
    json_stream_key_integer(json, "strobe", 1);
    if (writer->profile->process_count > 0)
        put_process(json, &writer->profile->processes[0]);
    put_seconds(json, "elapsed_s", writer->profile->elapsed_ns);
    put_counters(json, &writer->profile->counters);
    if (writer->profile->process_count > 0)
        put_memory(writer, 0);
    put_processes(writer);
    put_threads(writer);
    put_files(writer);
    put_functions(writer);
    json_stream_open_key(json, "native_functions", '[');
    put_natives(writer, writer->attribution.native_functions, writer->attribution.native_function_count);
    json_stream_close(json, ']');
    json_stream_open_key(json, "left_out", '{');
    put_measures(writer, writer->attribution.left_out_taken, writer->attribution.left_out, NULL);
    json_stream_close(json, '}');
    json_stream_close(json, '}');
    putc('\n', json->stream);
}

enum status export_write_json(const struct profile *profile, const struct export_options *options, FILE *stream,
                              struct error *error) {
    struct writer writer = {.profile = profile};
    TRY(attribute_profile(profile, options != NULL ? options->attribute : NULL, &writer.attribution, error));
    json_stream_init(&writer.json, stream);
    put_report(&writer);
    attribution_release(&writer.attribution);
    return export_finish(STATUS_OK, stream, error);
}
