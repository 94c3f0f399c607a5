/* Trace events (the 'Trace Event Format' of Chromium), as chrome://tracing, Perfetto and others open them: each
 * thread's calls as begin and end events. What two looks in a row both see is taken for one call. */
#include "base/json_stream.h"
#include "export/export.h"
#include "export/functions.h"
#include "export/ids.h"
#include "export/names.h"
#include "export/timeline.h"

#include <inttypes.h>
#include <stdlib.h>

enum { NS_PER_US_DECIMALS = 3 };

struct writer {
    struct json_stream json;
    const struct profile *profile;
    struct selection selection;
    struct functions functions;
    struct ids ids;
    uint32_t *frames; /* of the span at hand */
    uint32_t *open;   /* the functions that have begun, outermost first */
    size_t open_count;
    struct buffer name;
    int64_t pid;
    uint64_t tid;
    bool has_times;
};

static void put_ids(struct writer *writer) {
    json_stream_key_integer(&writer->json, "pid", writer->pid);
    json_stream_key(&writer->json, "tid");
    json_stream_unsigned(&writer->json, writer->tid);
}

static void put_phase(struct writer *writer, const char *phase, uint64_t time_ns) {
    json_stream_open(&writer->json, '{');
    json_stream_key_text(&writer->json, "ph", phase);
    json_stream_key(&writer->json, "ts");
    json_stream_decimal(&writer->json, time_ns, NS_PER_US_DECIMALS);
    put_ids(writer);
}

/* The place is in the name: viewers find an event's end by its name (and some by its arguments, so there are none). */
static void put_event(struct writer *writer, const char *phase, uint32_t function, uint64_t time_ns) {
    const struct profile_frame *frame = &writer->profile->frames[writer->functions.one_frame[function]];
    put_phase(writer, phase, time_ns);
    json_stream_key_text(&writer->json, "cat", frame->is_library ? "library" : "python");
    json_stream_key_text(&writer->json, "name", buffer_text(&writer->name));
    json_stream_close(&writer->json, '}');
}

static enum status put_call(struct writer *writer, const char *phase, uint32_t function, uint64_t time_ns) {
    const struct profile_frame *frame = &writer->profile->frames[writer->functions.one_frame[function]];
    buffer_clear(&writer->name);
    TRY(buffer_append_text(&writer->name, name_of_frame(frame)));
    if (frame->file[0] != '\0' && frame->first_line >= 0)
        TRY(buffer_append_format(&writer->name, " (%s:%" PRId32 ")", frame->file, frame->first_line));
    else if (frame->file[0] != '\0')
        TRY(buffer_append_format(&writer->name, " (%s)", frame->file));
    put_event(writer, phase, function, time_ns);
    return STATUS_OK;
}

static enum status end_down_to(struct writer *writer, size_t depth, uint64_t time_ns) {
    while (writer->open_count > depth)
        TRY(put_call(writer, "E", writer->open[--writer->open_count], time_ns));
    return STATUS_OK;
}

/* Ends what this span does not have any more, begins what is new in it. */
static enum status put_span(struct writer *writer, const struct span *span) {
    size_t count = selection_frames(&writer->selection, span->stack, writer->frames);
    size_t same = 0;
    while (same < count && same < writer->open_count &&
           writer->functions.of_frame[writer->frames[same]] == writer->open[same])
        same++;
    /* What ends and what begins must not be at one instant where both have one name: some viewers sort the begin first
     * then. A nanosecond between them is enough. */
    uint64_t begin_ns = span->start_ns + (same < writer->open_count && span->length_ns > 1);
    TRY(end_down_to(writer, same, span->start_ns));
    for (size_t i = same; i < count; i++) {
        uint32_t function = writer->functions.of_frame[writer->frames[i]];
        TRY(put_call(writer, "B", function, begin_ns));
        writer->open[writer->open_count++] = function;
    }
    return STATUS_OK;
}

static enum status put_thread(struct writer *writer, const struct timeline *timeline, uint32_t thread) {
    struct timeline_cursor cursor = {0};
    struct span span;
    uint64_t end_ns = 0;
    while (timeline_next(timeline, thread, &cursor, &span)) {
        if (!timeline_touches(timeline, end_ns, &span))
            TRY(end_down_to(writer, 0, end_ns));
        TRY(put_span(writer, &span));
        end_ns = span.start_ns + span.length_ns;
    }
    return end_down_to(writer, 0, end_ns);
}

static void put_name(struct writer *writer, const char *what, const char *name) {
    struct json_stream *json = &writer->json;
    put_phase(writer, "M", 0);
    json_stream_key_text(json, "name", what);
    json_stream_open_key(json, "args", '{');
    json_stream_key_text(json, "name", name);
    json_stream_close(json, '}');
    json_stream_close(json, '}');
}

static enum status put_processes(struct writer *writer) {
    enum status status = STATUS_OK;
    struct buffer name;
    buffer_init(&name, NAME_LIMIT_BYTES);
    for (size_t i = 0; i < writer->profile->process_count && status == STATUS_OK; i++) {
        writer->pid = writer->ids.pids[i];
        writer->tid = (uint64_t)writer->pid;
        buffer_clear(&name);
        status = name_append_command(&name, &writer->profile->processes[i]);
        put_name(writer, "process_name", buffer_text(&name));
    }
    buffer_release(&name);
    return status;
}

static enum status put_document(struct writer *writer, const struct timeline *timeline) {
    struct json_stream *json = &writer->json;
    json_stream_open(json, '{');
    json_stream_key_text(json, "displayTimeUnit", "ms");
    json_stream_open_key(json, "otherData", '{');
    json_stream_key_text(json, "exporter", "strobe " STROBE_VERSION);
    json_stream_key_text(json, "in_order", timeline->in_order ? "true" : "false");
    json_stream_close(json, '}');
    json_stream_open_key(json, "traceEvents", '[');
    TRY(put_processes(writer));
    for (uint32_t i = 0; i < writer->profile->thread_count; i++) {
        const struct profile_thread *thread = &writer->profile->threads[i];
        if (!selection_has_thread(&writer->selection, i))
            continue;
        writer->pid = writer->ids.pids[thread->process];
        writer->tid = writer->ids.tids[i];
        if (thread->name[0] != '\0')
            put_name(writer, "thread_name", thread->name);
        if (writer->has_times)
            TRY(put_thread(writer, timeline, i));
        putc('\n', json->stream);
    }
    json_stream_close(json, ']');
    json_stream_close(json, '}');
    putc('\n', json->stream);
    return STATUS_OK;
}

static enum status prepare(struct writer *writer, const struct export_options *options) {
    TRY(selection_init(&writer->selection, writer->profile, options));
    TRY(functions_init(&writer->functions, writer->profile, true));
    TRY(ids_init(&writer->ids, writer->profile));
    size_t room = selection_max_depth(&writer->selection) + 1;
    writer->frames = calloc(room, sizeof writer->frames[0]);
    writer->open = calloc(room, sizeof writer->open[0]);
    return writer->frames != NULL && writer->open != NULL ? STATUS_OK : STATUS_FAILED;
}

enum status export_write_chrome(const struct profile *profile, const struct export_options *options, FILE *stream,
                                struct error *error) {
    struct writer writer = {.profile = profile};
    struct timeline timeline = {0};
    enum measure measure = export_measure(profile, options);
    if (options != NULL && options->measure != NULL && measure_unit(measure) != UNIT_NS)
        return error_set(error, STATUS_USAGE, "trace events are spans of time: they cannot show '%s'",
                         measure_word(measure));
    /* What was too short to be sampled may have allocated. */
    writer.has_times = measure_unit(measure) == UNIT_NS;
    json_stream_init(&writer.json, stream);
    buffer_init(&writer.name, NAME_LIMIT_BYTES);
    enum status status = prepare(&writer, options);
    if (status == STATUS_OK)
        status = timeline_init(&timeline, &writer.selection, measure, true);
    if (status == STATUS_OK)
        status = put_document(&writer, &timeline);
    timeline_release(&timeline);
    buffer_release(&writer.name);
    free(writer.frames);
    free(writer.open);
    ids_release(&writer.ids);
    functions_release(&writer.functions);
    selection_release(&writer.selection);
    return export_finish(status, stream, error);
}
