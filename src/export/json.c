/* strobe's own JSON: docs/report.schema.json says what is in it. A measure that was not taken is absent. */
#include "base/buffer.h"
#include "export/export.h"
#include "export/names.h"

#include <jansson.h>
#include <string.h>

/* Where a measure stands in a row. */
struct column {
    enum measure measure;
    const char *self;  /* key; NULL: not shown alone */
    const char *total; /* key; NULL: not shown */
    const char *part;  /* key in "cpu_s" */
};

static const struct column columns[] = {
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
};
enum { COLUMN_COUNT = sizeof columns / sizeof columns[0] };

/* Puts a value, which becomes the object's; what fails (no memory) is noticed at the end. */
static void put(json_t *object, const char *key, json_t *value, bool *complete) {
    if (json_object_set_new(object, key, value) != 0)
        *complete = false;
}

static void append(json_t *array, json_t *value, bool *complete) {
    if (json_array_append_new(array, value) != 0)
        *complete = false;
}

static json_t *amount_value(enum measure measure, uint64_t amount) {
    if (measure_unit(measure) == UNIT_NS)
        return json_real((double)amount / 1e9);
    return json_integer(amount < INT64_MAX ? (json_int_t)amount : INT64_MAX);
}

static json_t *number_or_null(int64_t number) {
    return number >= 0 ? json_integer(number) : json_null();
}

static void put_measures(json_t *object, const struct profile *profile, const uint64_t *self, const uint64_t *total,
                         bool *complete) {
    json_t *parts = json_object();
    for (size_t i = 0; i < COLUMN_COUNT; i++) {
        const struct column *column = &columns[i];
        enum measure measure = column->measure;
        if (!profile_has(profile, measure))
            continue;
        if (column->part != NULL)
            put(parts, column->part, amount_value(measure, self[measure]), complete);
        if (column->self != NULL)
            put(object, column->self, amount_value(measure, self[measure]), complete);
        if (column->total != NULL && total != NULL)
            put(object, column->total, amount_value(measure, total[measure]), complete);
    }
    if (json_object_size(parts) > 0)
        put(object, "cpu_s", json_incref(parts), complete);
    json_decref(parts);
}

static json_t *line_value(const struct profile *profile, const struct attribute_row *row, bool *complete) {
    json_t *value = json_object();
    put(value, "line", number_or_null(row->line), complete);
    put(value, "function", json_string(row->function), complete);
    put(value, "qualname", json_string(row->qualname), complete);
    put_measures(value, profile, row->self, row->total, complete);
    return value;
}

static json_t *files_value(const struct profile *profile, const struct attribution *attribution, bool *complete) {
    json_t *files = json_array();
    json_t *lines = NULL;
    for (size_t i = 0; i < attribution->line_count; i++) {
        const struct attribute_row *row = &attribution->lines[i];
        if (i == 0 || strcmp(row->file, attribution->lines[i - 1].file) != 0) {
            json_t *file = json_object();
            lines = json_array();
            put(file, "path", json_string(row->file), complete);
            put(file, "lines", lines, complete);
            append(files, file, complete);
        }
        append(lines, line_value(profile, row, complete), complete);
    }
    return files;
}

static json_t *functions_value(const struct profile *profile, const struct attribution *attribution, bool *complete) {
    json_t *functions = json_array();
    for (size_t i = 0; i < attribution->function_count; i++) {
        const struct attribute_row *row = &attribution->functions[i];
        json_t *value = json_object();
        put(value, "path", json_string(row->file), complete);
        put(value, "function", json_string(row->function), complete);
        put(value, "qualname", json_string(row->qualname), complete);
        put(value, "line", number_or_null(row->first_line), complete);
        put_measures(value, profile, row->self, row->total, complete);
        append(functions, value, complete);
    }
    return functions;
}

static json_t *threads_value(const struct profile *profile, const struct attribution *attribution, bool *complete) {
    json_t *threads = json_array();
    for (size_t i = 0; i < profile->thread_count; i++) {
        const struct profile_thread *thread = &profile->threads[i];
        json_t *value = json_object();
        put(value, "pid", json_integer(profile->processes[thread->process].pid), complete);
        put(value, "native_id", thread->native_id != 0 ? json_integer((json_int_t)thread->native_id) : json_null(),
            complete);
        put(value, "name", thread->name[0] != '\0' ? json_string(thread->name) : json_null(), complete);
        if (thread->has_cpu)
            put(value, "cpu_s", json_real((double)thread->cpu_ns / 1e9), complete);
        json_t *measures = json_object();
        put_measures(measures, profile, attribution->threads[i], NULL, complete);
        put(value, "sampled", measures, complete);
        append(threads, value, complete);
    }
    return threads;
}

static json_t *counters_value(const struct capture_counters *counters, bool *complete) {
    json_t *value = json_object();
    put(value, "taken", json_integer((json_int_t)counters->taken), complete);
    put(value, "missed", json_integer((json_int_t)counters->missed), complete);
    put(value, "inconsistent", json_integer((json_int_t)counters->inconsistent), complete);
    put(value, "errors", json_integer((json_int_t)counters->errors), complete);
    return value;
}

static json_t *command_value(const struct profile_process *process, bool *complete) {
    json_t *command = json_array();
    for (size_t i = 0; i < process->command_count; i++)
        append(command, json_string(process->command[i]), complete);
    return command;
}

/* What a process is: at the top for the one that strobe was asked for, and in "processes" for each. */
static void put_process(json_t *value, const struct profile_process *process, bool *complete) {
    static const char *const modes[] = {
        [CAPTURE_MODE_WALL] = "wall", [CAPTURE_MODE_CPU] = "cpu", [CAPTURE_MODE_GIL] = "gil"};
    char version[NAME_VERSION_BYTES];
    char time[NAME_TIME_BYTES];
    name_format_version(process->python_version, version);
    name_format_time(process->start_unix_ns, time);
    put(value, "command", command_value(process, complete), complete);
    put(value, "pid", json_integer(process->pid), complete);
    put(value, "python", process->python_version != 0 ? json_string(version) : json_null(), complete);
    put(value, "free_threaded", json_boolean(process->free_threaded), complete);
    put(value, "mode", json_string(process->origin == CAPTURE_ORIGIN_RUN ? "run" : "attach"), complete);
    put(value, "clock", json_string(modes[process->mode]), complete);
    put(value, "start", json_string(time), complete);
    put(value, "rate_hz", json_real(process->rate_hz), complete);
}

static json_t *processes_value(const struct profile *profile, bool *complete) {
    json_t *processes = json_array();
    for (size_t i = 0; i < profile->process_count; i++) {
        const struct profile_process *process = &profile->processes[i];
        json_t *value = json_object();
        put_process(value, process, complete);
        put(value, "parent_pid", process->parent_pid != 0 ? json_integer(process->parent_pid) : json_null(), complete);
        put(value, "elapsed_s", json_real((double)process->elapsed_ns / 1e9), complete);
        put(value, "samples", counters_value(&process->counters, complete), complete);
        append(processes, value, complete);
    }
    return processes;
}

static json_t *report_value(const struct profile *profile, const struct attribution *attribution, bool *complete) {
    json_t *value = json_object();
    json_t *unattributed = json_object();
    put(value, "strobe", json_integer(1), complete);
    if (profile->process_count > 0)
        put_process(value, &profile->processes[0], complete);
    put(value, "elapsed_s", json_real((double)profile->elapsed_ns / 1e9), complete);
    put(value, "samples", counters_value(&profile->counters, complete), complete);
    put(value, "processes", processes_value(profile, complete), complete);
    put(value, "threads", threads_value(profile, attribution, complete), complete);
    put(value, "files", files_value(profile, attribution, complete), complete);
    put(value, "functions", functions_value(profile, attribution, complete), complete);
    put_measures(unattributed, profile, attribution->left_out, NULL, complete);
    put(value, "left_out", unattributed, complete);
    return value;
}

enum status export_write_json(const struct profile *profile, const struct export_options *options, FILE *stream,
                              struct error *error) {
    struct attribution attribution;
    bool complete = true;
    enum status status = attribute_profile(profile, options != NULL ? options->attribute : NULL, &attribution, error);
    if (status != STATUS_OK)
        return status;
    json_t *value = report_value(profile, &attribution, &complete);
    if (complete && value != NULL) {
        /* A failed write shows in the stream. */
        (void)json_dumpf(value, stream, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
        putc('\n', stream);
    }
    status = complete && value != NULL ? STATUS_OK : STATUS_FAILED;
    json_decref(value);
    attribution_release(&attribution);
    return export_finish(status, stream, error);
}
