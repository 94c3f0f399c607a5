#include "cli/diff_json.h"

#include "base/json_stream.h"

struct writer {
    struct json_stream json;
    const struct profile_diff *diff;
};

/* As the report's JSON calls them. */
static const char *const self_names[MEASURE_COUNT] = {
    [MEASURE_SAMPLES] = "samples",         [MEASURE_WALL_NS] = "wall_s",
    [MEASURE_CPU_NS] = "self_cpu_s",       [MEASURE_WAIT_NS] = "wait_s",
    [MEASURE_GIL_WAIT_NS] = "gil_wait_s",  [MEASURE_ALLOC_BYTES] = "alloc_bytes",
    [MEASURE_ALLOC_COUNT] = "alloc_count", [MEASURE_PEAK_BYTES] = "peak_bytes",
    [MEASURE_LIVE_BYTES] = "live_bytes",   [MEASURE_PYTHON_BYTES] = "python_bytes",
    [MEASURE_COPY_BYTES] = "copy_bytes",   [MEASURE_GPU_NS] = "gpu_s",
    [MEASURE_GPU_BYTES] = "gpu_bytes",     [MEASURE_TEMPORARY_BYTES] = "temporary_bytes",
    [MEASURE_LIVE_COUNT] = "live_count",
};

static void put_cpu_parts(struct writer *writer, const uint64_t *amounts) {
    static const char *const parts[] = {"python", "native", "kernel"};
    if (!writer->diff->taken[MEASURE_CPU_PYTHON_NS])
        return;
    json_stream_open_key(&writer->json, "cpu_s", '{');
    for (int i = 0; i < 3; i++) {
        json_stream_key(&writer->json, parts[i]);
        json_stream_decimal(&writer->json, amounts[MEASURE_CPU_PYTHON_NS + i], 9);
    }
    json_stream_close(&writer->json, '}');
}

static void put_amounts(struct writer *writer, const char *key, const uint64_t *amounts) {
    json_stream_open_key(&writer->json, key, '{');
    put_cpu_parts(writer, amounts);
    for (int m = 0; m < MEASURE_COUNT; m++) {
        if (self_names[m] == NULL || !writer->diff->taken[m])
            continue;
        json_stream_key(&writer->json, self_names[m]);
        json_stream_decimal(&writer->json, amounts[m], measure_unit((enum measure)m) == UNIT_NS ? 9 : 0);
    }
    json_stream_close(&writer->json, '}');
}

static void put_rows(struct writer *writer, const char *key, const struct diff_row *rows, size_t count) {
    json_stream_open_key(&writer->json, key, '[');
    for (size_t i = 0; i < count; i++) {
        const struct diff_row *row = &rows[i];
        int32_t line = row->line > 0 ? row->line : row->first_line;
        json_stream_open(&writer->json, '{');
        json_stream_key_text(&writer->json, "path", row->file);
        json_stream_key_text(&writer->json, "function", row->function);
        json_stream_key(&writer->json, "line");
        if (line > 0)
            json_stream_integer(&writer->json, line);
        else
            json_stream_null(&writer->json);
        put_amounts(writer, "before", row->self_before);
        put_amounts(writer, "after", row->self_after);
        put_amounts(writer, "total_before", row->total_before);
        put_amounts(writer, "total_after", row->total_after);
        json_stream_close(&writer->json, '}');
    }
    json_stream_close(&writer->json, ']');
}

static void put_profile(struct writer *writer, const char *key, const struct profile *profile, const uint64_t *sums) {
    json_stream_open_key(&writer->json, key, '{');
    if (profile->process_count > 0) {
        const struct profile_process *process = &profile->processes[0];
        json_stream_key_integer(&writer->json, "pid", process->pid);
        json_stream_open_key(&writer->json, "command", '[');
        for (size_t i = 0; i < process->command_count; i++)
            json_stream_text(&writer->json, process->command[i]);
        json_stream_close(&writer->json, ']');
    }
    json_stream_key(&writer->json, "elapsed_s");
    json_stream_decimal(&writer->json, profile->elapsed_ns, 9);
    put_amounts(writer, "sums", sums);
    json_stream_close(&writer->json, '}');
}

enum status diff_json_write(const struct profile *before, const struct profile *after,
                            const struct attribute_options *options, bool as_is, FILE *stream, struct error *error) {
    struct profile_diff diff;
    TRY(diff_profiles(before, after, options, as_is, &diff, error));
    struct writer writer = {.diff = &diff};
    json_stream_init(&writer.json, stream);
    json_stream_open(&writer.json, '{');
    json_stream_key_integer(&writer.json, "strobe_diff", 1);
    put_profile(&writer, "before", before, diff.sums_before);
    put_profile(&writer, "after", after, diff.sums_after);
    json_stream_key(&writer.json, "scale");
    json_stream_decimal(&writer.json, (uint64_t)(diff.scale < 1e9 ? diff.scale * 1e9 : 1e18), 9);
    put_rows(&writer, "lines", diff.lines, diff.line_count);
    put_rows(&writer, "functions", diff.functions, diff.function_count);
    json_stream_close(&writer.json, '}');
    putc('\n', stream);
    profile_diff_release(&diff);
    return ferror(stream) ? error_set(error, STATUS_FAILED, "the comparison could not be written") : STATUS_OK;
}
