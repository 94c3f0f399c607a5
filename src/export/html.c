/* One page that opens without a network: src/web has its text, style and scripts; this puts the profile in. What the
 * data looks like is said in src/web/model.js. */
#include "base/json_stream.h"
#include "base/text.h"
#include "export/export.h"
#include "export/functions.h"
#include "export/html_memory.h"
#include "export/names.h"
#include "export/selection.h"
#include "web/page.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Of source text: whole files of user code, a few lines around what was measured of the rest. */
enum { MAX_WHOLE_LINES = 20000, CONTEXT_LINES = 6, MAX_LINE_BYTES = 400, MAX_SOURCE_BYTES = 16 << 20 };

struct writer {
    struct json_stream json;
    FILE *stream;
    const struct profile *profile;
    const struct export_options *options;
    struct selection selection;
    struct functions functions;
    struct files files;
    struct buffer text;
    struct error error;
    size_t source_bytes; /* written so far */
};

static const char *measure_label(enum measure measure) {
    static const char *const labels[MEASURE_COUNT] = {
        [MEASURE_SAMPLES] = "samples",
        [MEASURE_WALL_NS] = "wall time",
        [MEASURE_CPU_NS] = "CPU time",
        [MEASURE_CPU_PYTHON_NS] = "CPU time: Python",
        [MEASURE_CPU_NATIVE_NS] = "CPU time: native",
        [MEASURE_CPU_KERNEL_NS] = "CPU time: kernel",
        [MEASURE_WAIT_NS] = "waiting",
        [MEASURE_GIL_WAIT_NS] = "waiting for the GIL",
        [MEASURE_ALLOC_BYTES] = "allocated",
        [MEASURE_ALLOC_COUNT] = "allocations",
        [MEASURE_PEAK_BYTES] = "live at the peak",
        [MEASURE_LIVE_BYTES] = "live at the end",
        [MEASURE_PYTHON_BYTES] = "allocated by Python",
        [MEASURE_COPY_BYTES] = "copied",
        [MEASURE_GPU_NS] = "GPU time",
        [MEASURE_GPU_BYTES] = "GPU memory",
        [MEASURE_TEMPORARY_BYTES] = "allocated and soon freed",
        [MEASURE_LIVE_COUNT] = "allocations live at the end",
    };
    return labels[measure];
}

static void put_measure(struct json_stream *json, enum measure measure) {
    static const char *const units[] = {[UNIT_COUNT] = "count", [UNIT_NS] = "ns", [UNIT_BYTES] = "bytes"};
    json_stream_open(json, '{');
    json_stream_key_text(json, "name", measure_name(measure));
    json_stream_key_text(json, "label", measure_label(measure));
    json_stream_key_text(json, "unit", units[measure_unit(measure)]);
    json_stream_close(json, '}');
}

/* The page shows waiting for itself. */
static enum measure main_measure(const struct writer *writer) {
    const struct profile *profile = writer->profile;
    enum measure main = profile_main_measure(profile);
    bool prefers_cpu = writer->options != NULL && writer->options->prefers_cpu;
    return main == MEASURE_WALL_NS && prefers_cpu && profile_total(profile, MEASURE_WAIT_NS) > 0 &&
                   profile_total(profile, MEASURE_CPU_NS) > 0
               ? MEASURE_CPU_NS
               : main;
}

/* Calls visit for each measure that was taken, the main one first. */
static void each_measure(struct writer *writer, void (*visit)(struct writer *writer, enum measure measure)) {
    enum measure main = main_measure(writer);
    if (profile_has(writer->profile, main))
        visit(writer, main);
    for (enum measure measure = 0; measure < MEASURE_SHOWN; measure++)
        if (measure != main && profile_has(writer->profile, measure))
            visit(writer, measure);
}

static void visit_measure(struct writer *writer, enum measure measure) {
    put_measure(&writer->json, measure);
}

static void put_facts(struct writer *writer) {
    const struct profile *profile = writer->profile;
    const struct profile_process *process = &profile->processes[0];
    struct json_stream *json = &writer->json;
    char version[NAME_VERSION_BYTES];
    char time[NAME_TIME_BYTES];
    char figure[64];
    json_stream_open_key(json, "facts", '{');
    if (profile->process_count > 0) {
        name_format_version(process->python_version, version);
        snprintf(figure, sizeof figure, "%s%s", version, process->free_threaded ? ", free-threaded" : "");
        if (version[0] != '\0')
            json_stream_key_text(json, "Python", figure);
        json_stream_key_integer(json, "process", process->pid);
        if (profile->process_count > 1)
            json_stream_key_integer(json, "processes", (int64_t)profile->process_count);
        name_format_time(process->start_unix_ns, time);
        json_stream_key_text(json, "start", time);
    }
    snprintf(figure, sizeof figure, "%" PRIu64 ".%" PRIu64 " s", profile->elapsed_ns / 1000000000,
             profile->elapsed_ns % 1000000000 / 100000000);
    json_stream_key_text(json, "sampled for", figure);
    if (profile->process_count > 0 && process->rate_hz > 0) {
        snprintf(figure, sizeof figure, "%.0f Hz", process->rate_hz);
        json_stream_key_text(json, "rate", figure);
    }
    json_stream_close(json, '}');
}

/* The line that says how far the figures may be trusted. */
static enum status put_honesty(struct writer *writer) {
    const struct profile *profile = writer->profile;
    const struct capture_counters *counters = &profile->counters;
    const struct capture_damage *damage = &profile->damage;
    bool is_damaged = damage->lost_bytes > 0 || damage->lost_chunks > 0 || damage->lost_records > 0;
    buffer_clear(&writer->text);
    TRY(buffer_append_format(&writer->text,
                             "Samples: %" PRIu64 " taken, %" PRIu64 " missed, %" PRIu64
                             " inconsistent and dropped, %" PRIu64 " failed.",
                             counters->taken, counters->missed, counters->inconsistent, counters->errors));
    if (is_damaged)
        TRY(buffer_append_text(&writer->text, " The capture is damaged: this is what could be read of it."));
    json_stream_key_text(&writer->json, "honesty", buffer_text(&writer->text));
    uint64_t dropped = counters->missed + counters->inconsistent + counters->errors;
    json_stream_key(&writer->json, "warning");
    json_stream_boolean(&writer->json, is_damaged || dropped * 20 > counters->taken);
    return STATUS_OK;
}

static enum status put_meta(struct writer *writer) {
    json_stream_open_key(&writer->json, "meta", '{');
    buffer_clear(&writer->text);
    if (writer->profile->process_count > 0)
        TRY(name_append_command(&writer->text, &writer->profile->processes[0]));
    json_stream_key_text(&writer->json, "command", buffer_text(&writer->text));
    put_facts(writer);
    TRY(put_honesty(writer));
    json_stream_close(&writer->json, '}');
    return STATUS_OK;
}

/* Strings: the functions' names, then the files' paths. */
static void put_strings(struct writer *writer) {
    struct json_stream *json = &writer->json;
    json_stream_open_key(json, "strings", '[');
    for (size_t i = 0; i < writer->functions.count; i++)
        json_stream_text(json, name_of_frame(&writer->profile->frames[writer->functions.one_frame[i]]));
    for (size_t i = 0; i < writer->files.count; i++)
        json_stream_text(json, writer->files.paths[i]);
    json_stream_close(json, ']');
}

static void put_files(struct writer *writer) {
    struct json_stream *json = &writer->json;
    json_stream_open_key(json, "files", '{');
    json_stream_open_key(json, "path", '[');
    for (size_t i = 0; i < writer->files.count; i++)
        json_stream_unsigned(json, writer->functions.count + i);
    json_stream_close(json, ']');
    json_stream_open_key(json, "library", '[');
    for (size_t i = 0; i < writer->files.count; i++)
        json_stream_integer(json, writer->files.is_library[i]);
    json_stream_close(json, ']');
    json_stream_close(json, '}');
}

static void put_functions(struct writer *writer) {
    const struct functions *functions = &writer->functions;
    const struct profile_frame *frames = writer->profile->frames;
    struct json_stream *json = &writer->json;
    json_stream_open_key(json, "functions", '{');
    json_stream_open_key(json, "name", '[');
    for (size_t i = 0; i < functions->count; i++)
        json_stream_unsigned(json, i);
    json_stream_close(json, ']');
    json_stream_open_key(json, "file", '[');
    for (size_t i = 0; i < functions->count; i++)
        json_stream_unsigned(json, writer->files.of_frame[functions->one_frame[i]]);
    json_stream_close(json, ']');
    json_stream_open_key(json, "line", '[');
    for (size_t i = 0; i < functions->count; i++)
        json_stream_integer(json, frames[functions->one_frame[i]].first_line);
    json_stream_close(json, ']');
    json_stream_open_key(json, "kind", '[');
    for (size_t i = 0; i < functions->count; i++)
        json_stream_integer(json, frames[functions->one_frame[i]].kind);
    json_stream_close(json, ']');
    json_stream_close(json, '}');
}

/* Without `all`, which the page itself can switch on and off. */
static enum status put_classes(struct writer *writer) {
    struct attribute_options options = {.thread = ATTRIBUTE_ANY, .process = ATTRIBUTE_ANY};
    struct attribution attribution;
    if (writer->options != NULL && writer->options->attribute != NULL)
        options = *writer->options->attribute;
    options.all = false;
    options.thread = ATTRIBUTE_ANY; /* whichever are shown, what a frame is does not depend on them */
    TRY(attribute_profile(writer->profile, &options, &attribution, &writer->error));
    json_stream_open_key(&writer->json, "class", '[');
    for (size_t i = 0; i < writer->profile->stack_count; i++)
        json_stream_unsigned(&writer->json, attribution.classes[i]);
    json_stream_close(&writer->json, ']');
    attribution_release(&attribution);
    return STATUS_OK;
}

static enum status put_frames(struct writer *writer) {
    const struct profile *profile = writer->profile;
    struct json_stream *json = &writer->json;
    json_stream_open_key(json, "frames", '{');
    json_stream_open_key(json, "function", '[');
    for (size_t i = 0; i < profile->frame_count; i++)
        json_stream_unsigned(json, writer->functions.of_frame[i]);
    json_stream_close(json, ']');
    json_stream_open_key(json, "line", '[');
    for (size_t i = 0; i < profile->frame_count; i++)
        json_stream_integer(json, profile->frames[i].line);
    json_stream_close(json, ']');
    json_stream_close(json, '}');
    json_stream_open_key(json, "stacks", '{');
    json_stream_open_key(json, "parent", '[');
    for (uint32_t i = 0; i < profile->stack_count; i++)
        json_stream_unsigned(json, i > 0 ? selection_caller(&writer->selection, i) : 0);
    json_stream_close(json, ']');
    json_stream_open_key(json, "frame", '[');
    for (size_t i = 0; i < profile->stack_count; i++)
        json_stream_unsigned(json, profile->stacks[i].frame);
    json_stream_close(json, ']');
    TRY(put_classes(writer));
    json_stream_close(json, '}');
    return STATUS_OK;
}

static enum status put_threads(struct writer *writer) {
    const struct profile *profile = writer->profile;
    struct json_stream *json = &writer->json;
    json_stream_open_key(json, "threads", '[');
    for (uint32_t i = 0; i < profile->thread_count; i++) {
        buffer_clear(&writer->text);
        TRY(name_append_thread(&writer->text, profile, i));
        json_stream_open(json, '{');
        json_stream_key_text(json, "name", buffer_text(&writer->text));
        json_stream_key_integer(json, "process", profile->threads[i].process);
        json_stream_close(json, '}');
    }
    json_stream_close(json, ']');
    json_stream_open_key(json, "processes", '[');
    for (size_t i = 0; i < profile->process_count; i++) {
        buffer_clear(&writer->text);
        TRY(name_append_command(&writer->text, &profile->processes[i]));
        json_stream_open(json, '{');
        json_stream_key_text(json, "command", buffer_text(&writer->text));
        json_stream_key_integer(json, "pid", profile->processes[i].pid);
        json_stream_close(json, '}');
    }
    json_stream_close(json, ']');
    return STATUS_OK;
}

static bool has_entry(const struct writer *writer, size_t number) {
    const struct profile_entry *entry = &writer->profile->entries[number];
    return selection_has(&writer->selection, entry->thread, entry->stack);
}

/* Of a measure that is sampled: how far it may be from the truth, as a variance; else null. */
static void visit_variances(struct writer *writer, enum measure measure) {
    struct json_stream *json = &writer->json;
    enum measure variance = measure_variance(measure);
    if (variance == MEASURE_COUNT || !profile_has(writer->profile, variance)) {
        json_stream_null(json);
        return;
    }
    json_stream_open(json, '[');
    for (size_t i = 0; i < writer->profile->entry_count; i++)
        if (has_entry(writer, i))
            json_stream_unsigned(json, profile_value(writer->profile, i, variance));
    json_stream_close(json, ']');
}

static void visit_values(struct writer *writer, enum measure measure) {
    struct json_stream *json = &writer->json;
    json_stream_open(json, '[');
    for (size_t i = 0; i < writer->profile->entry_count; i++)
        if (has_entry(writer, i))
            json_stream_unsigned(json, profile_value(writer->profile, i, measure));
    json_stream_close(json, ']');
}

static void put_entries(struct writer *writer) {
    const struct profile *profile = writer->profile;
    struct json_stream *json = &writer->json;
    json_stream_open_key(json, "entries", '{');
    json_stream_open_key(json, "thread", '[');
    for (size_t i = 0; i < profile->entry_count; i++)
        if (has_entry(writer, i))
            json_stream_unsigned(json, profile->entries[i].thread);
    json_stream_close(json, ']');
    json_stream_open_key(json, "stack", '[');
    for (size_t i = 0; i < profile->entry_count; i++)
        if (has_entry(writer, i))
            json_stream_unsigned(json, selection_stack(&writer->selection, profile->entries[i].stack));
    json_stream_close(json, ']');
    json_stream_open_key(json, "values", '[');
    each_measure(writer, visit_values);
    json_stream_close(json, ']');
    json_stream_open_key(json, "variances", '[');
    each_measure(writer, visit_variances);
    json_stream_close(json, ']');
    json_stream_close(json, '}');
}

/* Puts one line; false when there is none, or no more may be put. */
static bool put_source_line(struct writer *writer, const char *path, int32_t number, bool starts_run) {
    const char *text;
    size_t size_bytes;
    if (writer->source_bytes > MAX_SOURCE_BYTES ||
        writer->options->source(writer->options->source_context, path, number, &text, &size_bytes) != STATUS_OK)
        return false;
    if (size_bytes > MAX_LINE_BYTES)
        size_bytes = MAX_LINE_BYTES;
    buffer_clear(&writer->text);
    if (text_append_safe(&writer->text, text, size_bytes, false) != STATUS_OK)
        return false;
    writer->source_bytes += writer->text.size_bytes;
    if (starts_run)
        json_stream_open(&writer->json, '[');
    json_stream_text(&writer->json, strlen(buffer_text(&writer->text)) == writer->text.size_bytes
                                        ? buffer_text(&writer->text)
                                        : "\\x00");
    return true;
}

/* The lines wanted of one file are those before `end` whose bit is set, or all that there are. */
struct wanted {
    const bool *near; /* by line */
    int32_t end;
    bool whole;
};

/* Puts the runs' texts, and remembers where each begins. */
static size_t put_runs(struct writer *writer, const char *path, const struct wanted *wanted, int32_t *firsts) {
    size_t runs = 0;
    bool in_run = false;
    int32_t end = wanted->whole ? MAX_WHOLE_LINES : wanted->end;
    for (int32_t line = 1; line < end; line++) {
        bool is_wanted = wanted->whole || wanted->near[line];
        bool was_put = is_wanted && put_source_line(writer, path, line, !in_run);
        if (was_put && !in_run)
            firsts[runs++] = line;
        if (!was_put && in_run)
            json_stream_close(&writer->json, ']');
        in_run = was_put;
        if (is_wanted && !was_put)
            break;
    }
    if (in_run)
        json_stream_close(&writer->json, ']');
    return runs;
}

static enum status put_file_source(struct writer *writer, uint32_t file, const struct wanted *wanted) {
    char key[16];
    int32_t *firsts = calloc((size_t)wanted->end + 1, sizeof firsts[0]);
    if (firsts == NULL)
        return STATUS_FAILED;
    (void)snprintf(key, sizeof key, "%" PRIu32, file);
    json_stream_open_key(&writer->json, key, '{');
    json_stream_open_key(&writer->json, "text", '[');
    size_t runs = put_runs(writer, writer->files.paths[file], wanted, firsts);
    json_stream_close(&writer->json, ']');
    json_stream_open_key(&writer->json, "first", '[');
    for (size_t i = 0; i < runs; i++)
        json_stream_integer(&writer->json, firsts[i]);
    json_stream_close(&writer->json, ']');
    json_stream_close(&writer->json, '}');
    free(firsts);
    return STATUS_OK;
}

enum { MAX_LINE = 1 << 22 };

/* Marks the neighbourhood of each line of the file that some frame stands on. */
static enum status put_marked_source(struct writer *writer, uint32_t file, const uint32_t *frames, size_t count) {
    const struct profile *profile = writer->profile;
    struct wanted wanted = {.whole = !writer->files.is_library[file], .end = 1};
    for (size_t i = 0; i < count; i++)
        if (profile->frames[frames[i]].line > 0 && profile->frames[frames[i]].line < MAX_LINE &&
            profile->frames[frames[i]].line + CONTEXT_LINES >= wanted.end)
            wanted.end = profile->frames[frames[i]].line + CONTEXT_LINES + 1;
    bool *near = calloc((size_t)wanted.end + 1, sizeof near[0]);
    if (near == NULL)
        return STATUS_FAILED;
    for (size_t i = 0; i < count; i++) {
        int32_t line = profile->frames[frames[i]].line;
        if (line <= 0 || line >= MAX_LINE)
            continue;
        for (int32_t at = line - CONTEXT_LINES; at <= line + CONTEXT_LINES; at++)
            if (at > 0)
                near[at] = true;
    }
    wanted.near = near;
    wanted.whole = wanted.whole && wanted.end < MAX_WHOLE_LINES;
    enum status status = put_file_source(writer, file, &wanted);
    free(near);
    return status;
}

/* A library's file is no text. */
static bool has_python(const struct profile *profile, const uint32_t *frames, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (profile->frames[frames[i]].kind == CAPTURE_FRAME_PYTHON)
            return true;
    return false;
}

/* Frames by their file (a counting sort), then each file's source. */
static enum status put_sorted_sources(struct writer *writer, size_t *starts, uint32_t *frames) {
    const struct profile *profile = writer->profile;
    size_t file_count = writer->files.count;
    for (size_t i = 0; i < profile->frame_count; i++)
        starts[writer->files.of_frame[i] + 1]++;
    for (size_t i = 0; i < file_count; i++)
        starts[i + 1] += starts[i];
    for (size_t i = 0; i < profile->frame_count; i++)
        frames[starts[writer->files.of_frame[i]]++] = (uint32_t)i;
    memmove(starts + 1, starts, file_count * sizeof starts[0]);
    starts[0] = 0;
    for (size_t i = 0; i < file_count; i++) {
        const char *text;
        size_t size_bytes;
        const struct export_options *options = writer->options;
        if (options == NULL || options->source == NULL || writer->files.paths[i][0] == '\0' ||
            !has_python(profile, frames + starts[i], starts[i + 1] - starts[i]) ||
            options->source(options->source_context, writer->files.paths[i], 1, &text, &size_bytes) != STATUS_OK)
            continue;
        TRY(put_marked_source(writer, (uint32_t)i, frames + starts[i], starts[i + 1] - starts[i]));
    }
    return STATUS_OK;
}

static enum status put_sources(struct writer *writer) {
    size_t *starts = calloc(writer->files.count + 2, sizeof starts[0]);
    uint32_t *frames = calloc(writer->profile->frame_count + 1, sizeof frames[0]);
    enum status status = STATUS_FAILED;
    json_stream_open_key(&writer->json, "sources", '{');
    if (starts != NULL && frames != NULL)
        status = put_sorted_sources(writer, starts, frames);
    json_stream_close(&writer->json, '}');
    free(starts);
    free(frames);
    return status;
}

static enum status put_data(struct writer *writer) {
    struct json_stream *json = &writer->json;
    json_stream_open(json, '{');
    TRY(put_meta(writer));
    json_stream_key(json, "all");
    json_stream_boolean(json, writer->options != NULL && writer->options->attribute != NULL &&
                                  writer->options->attribute->all);
    json_stream_open_key(json, "measures", '[');
    each_measure(writer, visit_measure);
    json_stream_close(json, ']');
    put_strings(writer);
    put_files(writer);
    put_functions(writer);
    TRY(put_frames(writer));
    TRY(put_threads(writer));
    put_entries(writer);
    TRY(html_put_memory(json, writer->profile, writer->options, &writer->error));
    TRY(put_sources(writer));
    json_stream_close(json, '}');
    return STATUS_OK;
}

static enum status prepare(struct writer *writer) {
    TRY(selection_init(&writer->selection, writer->profile, writer->options));
    TRY(functions_init(&writer->functions, writer->profile, true));
    return files_init(&writer->files, writer->profile);
}

enum status export_write_html(const struct profile *profile, const struct export_options *options, FILE *stream,
                              struct error *error) {
    struct writer writer = {.stream = stream, .profile = profile, .options = options};
    json_stream_init(&writer.json, stream);
    buffer_init(&writer.text, NAME_LIMIT_BYTES);
    enum status status = prepare(&writer);
    if (status == STATUS_OK) {
        (void)fwrite(web_page_before_data, 1, web_page_before_data_size, stream);
        status = put_data(&writer);
        (void)fwrite(web_page_after_data, 1, web_page_after_data_size, stream);
    }
    buffer_release(&writer.text);
    files_release(&writer.files);
    functions_release(&writer.functions);
    selection_release(&writer.selection);
    return export_finish(status, stream, error);
}
