/* The Firefox Profiler's 'processed profile' (docs-developer/processed-profile-format.md of firefox-devtools/profiler),
 * version 60: the first whose tables are shared by all threads. The Profiler brings older versions up to its own. */
#include "base/buffer.h"
#include "base/json_stream.h"
#include "export/export.h"
#include "export/functions.h"
#include "export/ids.h"
#include "export/names.h"
#include "export/timeline.h"

#include <inttypes.h>

enum { PROCESSED_VERSION = 60, GECKO_VERSION = 33, NS_PER_MS_DECIMALS = 6 };

enum category { CATEGORY_OTHER, CATEGORY_USER, CATEGORY_LIBRARY, CATEGORY_NATIVE, CATEGORY_GC, CATEGORY_KERNEL };

/* Colours are names that the Profiler knows; one has to be grey. */
static const struct {
    const char *name;
    const char *color;
} categories[] = {
    [CATEGORY_OTHER] = {"Other", "grey"},     [CATEGORY_USER] = {"Python", "yellow"},
    [CATEGORY_LIBRARY] = {"Library", "blue"}, [CATEGORY_NATIVE] = {"Native", "purple"},
    [CATEGORY_GC] = {"GC", "green"},          [CATEGORY_KERNEL] = {"Kernel", "orange"},
};

struct writer {
    struct json_stream json;
    const struct profile *profile;
    enum measure main;
    struct selection selection;
    struct functions functions;
    struct files files;
    struct ids ids;
    struct buffer name;
};

static enum category category_of(const struct profile_frame *frame) {
    switch (frame->kind) {
    case CAPTURE_FRAME_PYTHON:
        return frame->is_library ? CATEGORY_LIBRARY : CATEGORY_USER;
    case CAPTURE_FRAME_NATIVE:
        return CATEGORY_NATIVE;
    case CAPTURE_FRAME_GC:
        return CATEGORY_GC;
    case CAPTURE_FRAME_KERNEL:
        return CATEGORY_KERNEL;
    default:
        return CATEGORY_OTHER;
    }
}

static void put_ms(struct json_stream *json, uint64_t ns) {
    json_stream_decimal(json, ns, NS_PER_MS_DECIMALS);
}

static void put_key_ms(struct json_stream *json, const char *key, uint64_t ns) {
    json_stream_key(json, key);
    put_ms(json, ns);
}

static void put_key_boolean(struct json_stream *json, const char *key, bool value) {
    json_stream_key(json, key);
    json_stream_boolean(json, value);
}

static void put_categories(struct json_stream *json) {
    json_stream_open_key(json, "categories", '[');
    for (size_t i = 0; i < sizeof categories / sizeof categories[0]; i++) {
        json_stream_open(json, '{');
        json_stream_key_text(json, "name", categories[i].name);
        json_stream_key_text(json, "color", categories[i].color);
        json_stream_open_key(json, "subcategories", '[');
        json_stream_text(json, "Other");
        json_stream_close(json, ']');
        json_stream_close(json, '}');
    }
    json_stream_close(json, ']');
}

static enum status put_meta(struct writer *writer) {
    const struct profile *profile = writer->profile;
    struct json_stream *json = &writer->json;
    double rate_hz = profile->process_count > 0 ? profile->processes[0].rate_hz : 0;
    json_stream_open_key(json, "meta", '{');
    put_key_ms(json, "interval", rate_hz > 0 ? (uint64_t)(1e9 / rate_hz) : 1000000);
    put_key_ms(json, "startTime", profile->start_unix_ns);
    put_key_ms(json, "endTime", profile->start_unix_ns + profile->elapsed_ns);
    put_key_ms(json, "profilingStartTime", 0);
    put_key_ms(json, "profilingEndTime", profile->elapsed_ns);
    json_stream_key_integer(json, "processType", 0);
    buffer_clear(&writer->name);
    if (profile->process_count > 0)
        TRY(name_append_command(&writer->name, &profile->processes[0]));
    json_stream_key_text(json, "product", buffer_text(&writer->name));
    json_stream_key_text(json, "importedFrom", "strobe");
    json_stream_key_integer(json, "stackwalk", 1);
    json_stream_key_integer(json, "version", GECKO_VERSION);
    json_stream_key_integer(json, "preprocessedProfileVersion", PROCESSED_VERSION);
    put_key_boolean(json, "symbolicated", true);
    put_key_boolean(json, "symbolicationNotSupported", true);
    put_key_boolean(json, "usesOnlyOneStackType", true);
    put_key_boolean(json, "sourceCodeIsNotOnSearchfox", true);
    put_categories(json);
    json_stream_open_key(json, "markerSchema", '[');
    json_stream_close(json, ']');
    json_stream_open_key(json, "sampleUnits", '{');
    json_stream_key_text(json, "time", "ms");
    json_stream_key_text(json, "eventDelay", "ms");
    json_stream_key_text(json, "threadCPUDelta", "ns");
    json_stream_close(json, '}');
    json_stream_close(json, '}');
    return STATUS_OK;
}

/* Columns that hold the same in every row. */
static void put_column(struct json_stream *json, const char *key, size_t length, const char *value) {
    json_stream_open_key(json, key, '[');
    for (size_t i = 0; i < length; i++)
        fprintf(json->stream, i > 0 ? ",%s" : "%s", value);
    json_stream_close(json, ']');
}

static void put_length(struct json_stream *json, size_t length) {
    json_stream_key_integer(json, "length", (int64_t)length);
    json_stream_close(json, '}');
}

static void put_empty_table(struct json_stream *json, const char *key, const char *const *columns, size_t count) {
    json_stream_open_key(json, key, '{');
    for (size_t i = 0; i < count; i++)
        put_column(json, columns[i], 0, "");
    put_length(json, 0);
}

/* Row i is stack i + 1. */
static void put_stacks(struct writer *writer) {
    const struct profile *profile = writer->profile;
    struct json_stream *json = &writer->json;
    json_stream_open_key(json, "stackTable", '{');
    json_stream_open_key(json, "frame", '[');
    for (size_t i = 1; i < profile->stack_count; i++)
        json_stream_unsigned(json, profile->stacks[i].frame);
    json_stream_close(json, ']');
    json_stream_open_key(json, "prefix", '[');
    for (size_t i = 1; i < profile->stack_count; i++) {
        uint32_t caller = selection_caller(&writer->selection, (uint32_t)i);
        if (caller != 0)
            json_stream_unsigned(json, caller - 1);
        else
            json_stream_null(json);
    }
    json_stream_close(json, ']');
    put_length(json, profile->stack_count - 1);
}

static void put_position(struct json_stream *json, int32_t position, int32_t first) {
    if (position >= 0)
        json_stream_integer(json, (int64_t)position + first);
    else
        json_stream_null(json);
}

static void put_frames(struct writer *writer) {
    const struct profile *profile = writer->profile;
    struct json_stream *json = &writer->json;
    size_t count = profile->frame_count;
    json_stream_open_key(json, "frameTable", '{');
    put_column(json, "address", count, "-1");
    put_column(json, "inlineDepth", count, "0");
    json_stream_open_key(json, "category", '[');
    for (size_t i = 0; i < count; i++)
        json_stream_integer(json, category_of(&profile->frames[i]));
    json_stream_close(json, ']');
    put_column(json, "subcategory", count, "0");
    json_stream_open_key(json, "func", '[');
    for (size_t i = 0; i < count; i++)
        json_stream_unsigned(json, writer->functions.of_frame[i]);
    json_stream_close(json, ']');
    put_column(json, "nativeSymbol", count, "null");
    put_column(json, "innerWindowID", count, "null");
    json_stream_open_key(json, "line", '[');
    for (size_t i = 0; i < count; i++)
        put_position(json, profile->frames[i].line, 0);
    json_stream_close(json, ']');
    json_stream_open_key(json, "column", '[');
    for (size_t i = 0; i < count; i++)
        put_position(json, profile->frames[i].column, 1);
    json_stream_close(json, ']');
    put_length(json, count);
}

/* Strings: the names of functions, then the paths of files. */
static void put_functions(struct writer *writer) {
    struct json_stream *json = &writer->json;
    size_t count = writer->functions.count;
    json_stream_open_key(json, "funcTable", '{');
    json_stream_open_key(json, "name", '[');
    for (size_t i = 0; i < count; i++)
        json_stream_unsigned(json, i);
    json_stream_close(json, ']');
    put_column(json, "isJS", count, "false");
    put_column(json, "relevantForJS", count, "false");
    put_column(json, "resource", count, "-1");
    json_stream_open_key(json, "source", '[');
    for (size_t i = 0; i < count; i++) {
        uint32_t file = writer->files.of_frame[writer->functions.one_frame[i]];
        if (writer->files.paths[file][0] != '\0')
            json_stream_unsigned(json, file);
        else
            json_stream_null(json);
    }
    json_stream_close(json, ']');
    json_stream_open_key(json, "lineNumber", '[');
    for (size_t i = 0; i < count; i++)
        put_position(json, writer->profile->frames[writer->functions.one_frame[i]].first_line, 0);
    json_stream_close(json, ']');
    put_column(json, "columnNumber", count, "null");
    put_length(json, count);
}

static void put_sources(struct writer *writer) {
    struct json_stream *json = &writer->json;
    json_stream_open_key(json, "sources", '{');
    put_column(json, "uuid", writer->files.count, "null");
    json_stream_open_key(json, "filename", '[');
    for (size_t i = 0; i < writer->files.count; i++)
        json_stream_unsigned(json, writer->functions.count + i);
    json_stream_close(json, ']');
    put_length(json, writer->files.count);
}

static void put_strings(struct writer *writer) {
    struct json_stream *json = &writer->json;
    json_stream_open_key(json, "stringArray", '[');
    for (size_t i = 0; i < writer->functions.count; i++)
        json_stream_text(json, name_of_frame(&writer->profile->frames[writer->functions.one_frame[i]]));
    for (size_t i = 0; i < writer->files.count; i++)
        json_stream_text(json, writer->files.paths[i]);
    json_stream_close(json, ']');
}

static void put_shared(struct writer *writer) {
    static const char *const resource_columns[] = {"lib", "name", "host", "type"};
    static const char *const symbol_columns[] = {"libIndex", "address", "name", "functionSize"};
    struct json_stream *json = &writer->json;
    json_stream_open_key(json, "libs", '[');
    json_stream_close(json, ']');
    json_stream_open_key(json, "shared", '{');
    put_stacks(writer);
    put_frames(writer);
    put_functions(writer);
    put_sources(writer);
    put_empty_table(json, "resourceTable", resource_columns, 4);
    put_empty_table(json, "nativeSymbols", symbol_columns, 4);
    put_strings(writer);
    json_stream_close(json, '}');
}

enum column { COLUMN_STACK, COLUMN_TIME, COLUMN_WEIGHT, COLUMN_CPU };

static void put_cell(struct json_stream *json, enum column column, const struct span *span, enum measure_unit unit) {
    switch (column) {
    case COLUMN_STACK:
        if (span->stack != 0)
            json_stream_unsigned(json, span->stack - 1);
        else
            json_stream_null(json);
        break;
    case COLUMN_TIME:
        put_ms(json, span->start_ns);
        break;
    case COLUMN_WEIGHT:
        json_stream_decimal(json, span->weight, unit == UNIT_NS ? NS_PER_MS_DECIMALS : 0);
        break;
    case COLUMN_CPU:
        json_stream_unsigned(json, span->run == CAPTURE_RUNNING ? span->length_ns : 0);
        break;
    }
}

static size_t put_spans(struct writer *writer, const struct timeline *timeline, uint32_t thread, const char *key,
                        enum column column) {
    struct timeline_cursor cursor = {0};
    struct span span;
    size_t count = 0, most = timeline->starts[thread + 1] - timeline->starts[thread];
    enum measure_unit unit = measure_unit(timeline->measure);
    json_stream_open_key(&writer->json, key, '[');
    for (; timeline_next(timeline, thread, &cursor, &span); count++) {
        /* Bytes laid end to end are no times: they stand evenly in the time that there is. */
        if (unit != UNIT_NS)
            span.start_ns = writer->profile->elapsed_ns / most * count;
        put_cell(&writer->json, column, &span, unit);
    }
    json_stream_close(&writer->json, ']');
    return count;
}

static const char *const weight_types[] = {[UNIT_COUNT] = "samples", [UNIT_NS] = "tracing-ms", [UNIT_BYTES] = "bytes"};

/* Samples, and allocations too, which look the same. */
static void put_table(struct writer *writer, const struct timeline *timeline, uint32_t thread, const char *key) {
    struct json_stream *json = &writer->json;
    json_stream_open_key(json, key, '{');
    put_spans(writer, timeline, thread, "stack", COLUMN_STACK);
    put_spans(writer, timeline, thread, "time", COLUMN_TIME);
    if (timeline->in_order)
        put_spans(writer, timeline, thread, "threadCPUDelta", COLUMN_CPU);
    size_t count = put_spans(writer, timeline, thread, "weight", COLUMN_WEIGHT);
    json_stream_key_text(json, "weightType", weight_types[measure_unit(timeline->measure)]);
    put_length(json, count);
}

/* A look that saw nothing and stands for nothing: a profile without any the Profiler does not open. */
static void put_no_samples(struct json_stream *json, enum measure_unit unit) {
    json_stream_open_key(json, "samples", '{');
    put_column(json, "stack", 1, "null");
    put_column(json, "time", 1, "0");
    put_column(json, "weight", 1, "0");
    json_stream_key_text(json, "weightType", weight_types[unit]);
    put_length(json, 1);
}

static enum status put_thread_head(struct writer *writer, uint32_t index) {
    const struct profile_thread *thread = &writer->profile->threads[index];
    const struct profile_process *process = &writer->profile->processes[thread->process];
    struct json_stream *json = &writer->json;
    json_stream_key_text(json, "name", thread->name[0] != '\0' ? thread->name : "?");
    /* One in each process: an exec begins another. */
    put_key_boolean(json, "isMainThread", writer->ids.tids[index] == (uint64_t)writer->ids.pids[thread->process]);
    json_stream_key_text(json, "processType", "default");
    buffer_clear(&writer->name);
    TRY(name_append_command(&writer->name, process));
    json_stream_key_text(json, "processName", buffer_text(&writer->name));
    buffer_clear(&writer->name);
    TRY(buffer_append_format(&writer->name, "%" PRId64, writer->ids.pids[thread->process]));
    json_stream_key_text(json, "pid", buffer_text(&writer->name));
    json_stream_key(json, "tid");
    json_stream_unsigned(json, writer->ids.tids[index]);
    put_key_ms(json, "processStartupTime", 0);
    json_stream_key(json, "processShutdownTime");
    json_stream_null(json);
    put_key_ms(json, "registerTime", 0);
    json_stream_key(json, "unregisterTime");
    json_stream_null(json);
    json_stream_open_key(json, "pausedRanges", '[');
    json_stream_close(json, ']');
    return STATUS_OK;
}

static enum status put_threads(struct writer *writer, const struct timeline *time, const struct timeline *memory) {
    static const char *const marker_columns[] = {"data", "name", "startTime", "endTime", "phase", "category"};
    struct json_stream *json = &writer->json;
    size_t count = writer->profile->thread_count;
    bool is_empty = time->starts[count] == 0 && memory->starts[count] == 0;
    json_stream_open_key(json, "threads", '[');
    for (uint32_t i = 0; i < count; i++) {
        if (!selection_has_thread(&writer->selection, i))
            continue;
        json_stream_open(json, '{');
        TRY(put_thread_head(writer, i));
        if (is_empty)
            put_no_samples(json, measure_unit(time->measure));
        else
            put_table(writer, time, i, "samples");
        if (memory->starts[i + 1] > memory->starts[i])
            put_table(writer, memory, i, "nativeAllocations");
        put_empty_table(json, "markers", marker_columns, 6);
        json_stream_close(json, '}');
    }
    json_stream_close(json, ']');
    return STATUS_OK;
}

static enum status put_document(struct writer *writer) {
    struct timeline time = {0};
    struct timeline memory = {0};
    enum status status = timeline_init(&time, &writer->selection, writer->main, true);
    if (status == STATUS_OK)
        status = timeline_init(&memory, &writer->selection, MEASURE_ALLOC_BYTES, false);
    time.separate = true;
    json_stream_open(&writer->json, '{');
    if (status == STATUS_OK)
        status = put_meta(writer);
    if (status == STATUS_OK) {
        put_shared(writer);
        status = put_threads(writer, &time, &memory);
    }
    json_stream_close(&writer->json, '}');
    putc('\n', writer->json.stream);
    timeline_release(&time);
    timeline_release(&memory);
    return status;
}

enum status export_write_gecko(const struct profile *profile, const struct export_options *options, FILE *stream,
                               struct error *error) {
    struct writer writer = {.profile = profile, .main = export_measure(profile, options)};
    json_stream_init(&writer.json, stream);
    buffer_init(&writer.name, NAME_LIMIT_BYTES);
    enum status status = selection_init(&writer.selection, profile, options);
    if (status == STATUS_OK)
        status = functions_init(&writer.functions, profile, true);
    if (status == STATUS_OK)
        status = files_init(&writer.files, profile);
    if (status == STATUS_OK)
        status = ids_init(&writer.ids, profile);
    if (status == STATUS_OK)
        status = put_document(&writer);
    buffer_release(&writer.name);
    ids_release(&writer.ids);
    files_release(&writer.files);
    functions_release(&writer.functions);
    selection_release(&writer.selection);
    return export_finish(status, stream, error);
}
