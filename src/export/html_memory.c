#include "export/html_memory.h"

enum { THOUSANDTHS = 3 };

static void put_series(struct json_stream *json, const struct series *series) {
    json_stream_open_key(json, "time", '[');
    for (size_t i = 0; i < series->count; i++)
        json_stream_unsigned(json, series->points[i].time_ns);
    json_stream_close(json, ']');
    json_stream_open_key(json, "bytes", '[');
    for (size_t i = 0; i < series->count; i++)
        json_stream_unsigned(json, series->points[i].value);
    json_stream_close(json, ']');
}

static void put_place(struct json_stream *json, const char *file, int32_t line, const char *function) {
    json_stream_key_text(json, "file", file);
    json_stream_key_integer(json, "line", line);
    json_stream_key_text(json, "function", function);
}

static void put_lines(struct json_stream *json, const struct line_memory *memory, uint32_t process) {
    json_stream_open_key(json, "lines", '[');
    for (size_t i = 0; i < memory->held_count; i++) {
        const struct held_line *held = &memory->held[i];
        if (held->process != process)
            continue;
        json_stream_open(json, '{');
        put_place(json, held->file, held->line, held->function);
        json_stream_key(json, "most");
        json_stream_unsigned(json, held->most_bytes);
        put_series(json, &held->timeline);
        json_stream_close(json, '}');
    }
    json_stream_close(json, ']');
}

static void put_thousandths(struct json_stream *json, const char *key, double number) {
    json_stream_key(json, key);
    json_stream_decimal(json, number < 1e15 ? (uint64_t)(number * 1000 + 0.5) : UINT64_MAX, THOUSANDTHS);
}

static void put_leaks(struct json_stream *json, const struct line_memory *memory, uint32_t process) {
    json_stream_open_key(json, "leaks", '[');
    for (size_t i = 0; i < memory->leak_count; i++) {
        const struct leak *leak = &memory->leaks[i];
        if (leak->process != process)
            continue;
        json_stream_open(json, '{');
        put_place(json, leak->file, leak->line, leak->function);
        put_thousandths(json, "likelihood", leak->verdict.likelihood);
        put_thousandths(json, "rate", leak->verdict.bytes_per_s);
        put_thousandths(json, "age", leak->verdict.age_s);
        json_stream_key(json, "live");
        json_stream_unsigned(json, leak->live_bytes);
        json_stream_key(json, "survivors");
        json_stream_unsigned(json, leak->survivors);
        json_stream_key_integer(json, "rises", (int64_t)leak->verdict.rises);
        json_stream_close(json, '}');
    }
    json_stream_close(json, ']');
}

static void put_process(struct json_stream *json, const struct profile *profile, uint32_t number,
                        const struct line_memory *lines) {
    const struct profile_memory *memory = &profile->processes[number].memory;
    json_stream_open(json, '{');
    json_stream_key_integer(json, "process", number);
    json_stream_key(json, "peak");
    json_stream_unsigned(json, memory->peak_bytes);
    json_stream_key(json, "peakTime");
    json_stream_unsigned(json, memory->peak_ns);
    json_stream_key(json, "end");
    json_stream_unsigned(json, memory->footprint_bytes);
    json_stream_key(json, "resident");
    json_stream_unsigned(json, memory->resident_bytes);
    json_stream_key(json, "inherited");
    json_stream_unsigned(json, memory->inherited_bytes);
    json_stream_key(json, "stride");
    json_stream_unsigned(json, memory->stride_bytes);
    json_stream_key(json, "lost");
    json_stream_unsigned(json, memory->lost_records);
    put_series(json, &memory->timeline);
    put_lines(json, lines, number);
    put_leaks(json, lines, number);
    json_stream_close(json, '}');
}

static bool has_memory(const struct profile *profile) {
    for (size_t i = 0; i < profile->process_count; i++)
        if (profile->processes[i].memory.is_taken)
            return true;
    return false;
}

enum status html_put_memory(struct json_stream *json, const struct profile *profile,
                            const struct export_options *options, struct error *error) {
    struct attribution attribution;
    if (!has_memory(profile))
        return STATUS_OK;
    TRY(attribute_profile(profile, options != NULL ? options->attribute : NULL, &attribution, error));
    json_stream_open_key(json, "memory", '[');
    for (uint32_t i = 0; i < profile->process_count; i++)
        if (profile->processes[i].memory.is_taken)
            put_process(json, profile, i, &attribution.memory);
    json_stream_close(json, ']');
    attribution_release(&attribution);
    return STATUS_OK;
}
