/* speedscope's own format (https://www.speedscope.app/file-format-schema.json): frames shared by all, then one sampled
 * profile for each thread and value, stacks outermost first. */
#include "base/buffer.h"
#include "base/json_stream.h"
#include "export/export.h"
#include "export/names.h"
#include "export/timeline.h"

#include <stdlib.h>

/* speedscope holds stacks frame by frame: many deep ones in their order of time would be more than it can open. Beyond
 * this, spans in order become sums. */
enum { MAX_FRAMES_IN_ORDER = 20000000 };

struct writer {
    struct json_stream json;
    const struct profile *profile;
    enum measure main;
    struct selection selection;
    uint32_t *frames; /* room for the deepest stack */
    struct buffer name;
    size_t profile_count; /* written so far */
};

static void put_frames(struct writer *writer) {
    struct json_stream *json = &writer->json;
    json_stream_open_key(json, "shared", '{');
    json_stream_open_key(json, "frames", '[');
    for (size_t i = 0; i < writer->profile->frame_count; i++) {
        const struct profile_frame *frame = &writer->profile->frames[i];
        json_stream_open(json, '{');
        json_stream_key_text(json, "name", i == 0 ? "<no frames>" : name_of_frame(frame));
        if (frame->file[0] != '\0')
            json_stream_key_text(json, "file", frame->file);
        if (frame->line >= 0)
            json_stream_key_integer(json, "line", frame->line);
        /* Their columns count from 1. */
        if (frame->line >= 0 && frame->column >= 0)
            json_stream_key_integer(json, "col", (int64_t)frame->column + 1);
        json_stream_close(json, '}');
    }
    json_stream_close(json, ']');
    json_stream_close(json, '}');
}

static void put_weight(struct json_stream *json, uint64_t weight, enum measure_unit unit) {
    json_stream_decimal(json, weight, unit == UNIT_NS ? 9 : 0);
}

static void put_samples(struct writer *writer, const struct timeline *timeline, uint32_t thread) {
    struct timeline_cursor cursor = {0};
    struct span span;
    json_stream_open_key(&writer->json, "samples", '[');
    while (timeline_next(timeline, thread, &cursor, &span)) {
        size_t count = selection_frames(&writer->selection, span.stack, writer->frames);
        json_stream_open(&writer->json, '[');
        for (size_t i = 0; i < count; i++)
            json_stream_unsigned(&writer->json, writer->frames[i]);
        if (count == 0)
            json_stream_unsigned(&writer->json, 0);
        json_stream_close(&writer->json, ']');
    }
    json_stream_close(&writer->json, ']');
}

static uint64_t put_weights(struct writer *writer, const struct timeline *timeline, uint32_t thread) {
    enum measure_unit unit = measure_unit(timeline->measure);
    struct timeline_cursor cursor = {0};
    struct span span;
    uint64_t sum = 0;
    json_stream_open_key(&writer->json, "weights", '[');
    while (timeline_next(timeline, thread, &cursor, &span)) {
        put_weight(&writer->json, span.weight, unit);
        sum += span.weight;
    }
    json_stream_close(&writer->json, ']');
    return sum;
}

static enum status put_thread(struct writer *writer, const struct timeline *timeline, uint32_t thread) {
    static const char *const units[] = {[UNIT_COUNT] = "none", [UNIT_NS] = "seconds", [UNIT_BYTES] = "bytes"};
    struct json_stream *json = &writer->json;
    enum measure_unit unit = measure_unit(timeline->measure);
    buffer_clear(&writer->name);
    TRY(name_append_thread(&writer->name, writer->profile, thread));
    TRY(buffer_append_format(&writer->name, ": %s", measure_name(timeline->measure)));
    json_stream_open(json, '{');
    json_stream_key_text(json, "type", "sampled");
    json_stream_key_text(json, "name", buffer_text(&writer->name));
    json_stream_key_text(json, "unit", units[unit]);
    put_samples(writer, timeline, thread);
    uint64_t sum = put_weights(writer, timeline, thread);
    json_stream_key_integer(json, "startValue", 0);
    json_stream_key(json, "endValue");
    put_weight(json, sum, unit);
    json_stream_close(json, '}');
    writer->profile_count++;
    return STATUS_OK;
}

/* Whether the spans of all threads have few enough frames. */
static bool is_small(const struct timeline *timeline) {
    const struct profile *profile = timeline->selection->profile;
    uint64_t frames = 0;
    for (uint32_t thread = 0; thread < profile->thread_count; thread++) {
        struct timeline_cursor cursor = {0};
        struct span span;
        while (timeline_next(timeline, thread, &cursor, &span))
            frames += profile->stacks[span.stack].depth;
    }
    return frames <= MAX_FRAMES_IN_ORDER;
}

static enum status put_measure(struct writer *writer, enum measure measure) {
    bool in_order = measure == writer->main;
    struct timeline timeline;
    TRY(timeline_init(&timeline, &writer->selection, measure, in_order));
    if (timeline.in_order && !is_small(&timeline)) {
        timeline_release(&timeline);
        TRY(timeline_init(&timeline, &writer->selection, measure, false));
    }
    enum status status = STATUS_OK;
    for (uint32_t i = 0; i < writer->profile->thread_count && status == STATUS_OK; i++)
        if (timeline.starts[i + 1] > timeline.starts[i])
            status = put_thread(writer, &timeline, i);
    timeline_release(&timeline);
    return status;
}

/* Without any profile speedscope shows an error. */
static void put_nothing(struct json_stream *json) {
    json_stream_open(json, '{');
    json_stream_key_text(json, "type", "sampled");
    json_stream_key_text(json, "name", "nothing was measured");
    json_stream_key_text(json, "unit", "none");
    json_stream_open_key(json, "samples", '[');
    json_stream_close(json, ']');
    json_stream_open_key(json, "weights", '[');
    json_stream_close(json, ']');
    json_stream_key_integer(json, "startValue", 0);
    json_stream_key_integer(json, "endValue", 0);
    json_stream_close(json, '}');
}

static enum status put_profiles(struct writer *writer) {
    enum measure main = writer->main;
    json_stream_open_key(&writer->json, "profiles", '[');
    /* The first one is what speedscope opens. */
    if (profile_has(writer->profile, main))
        TRY(put_measure(writer, main));
    for (enum measure measure = 0; measure < MEASURE_SHOWN; measure++)
        if (measure != main && profile_has(writer->profile, measure))
            TRY(put_measure(writer, measure));
    if (writer->profile_count == 0)
        put_nothing(&writer->json);
    json_stream_close(&writer->json, ']');
    return STATUS_OK;
}

static enum status put_document(struct writer *writer) {
    struct json_stream *json = &writer->json;
    if (writer->profile->process_count > 0)
        TRY(name_append_command(&writer->name, &writer->profile->processes[0]));
    json_stream_open(json, '{');
    json_stream_key_text(json, "$schema", "https://www.speedscope.app/file-format-schema.json");
    json_stream_key_text(json, "name", buffer_text(&writer->name));
    json_stream_key_text(json, "exporter", "strobe@" STROBE_VERSION);
    json_stream_key_integer(json, "activeProfileIndex", 0);
    put_frames(writer);
    TRY(put_profiles(writer));
    json_stream_close(json, '}');
    putc('\n', json->stream);
    return STATUS_OK;
}

enum status export_write_speedscope(const struct profile *profile, const struct export_options *options, FILE *stream,
                                    struct error *error) {
    struct writer writer = {.profile = profile, .main = export_measure(profile, options)};
    json_stream_init(&writer.json, stream);
    buffer_init(&writer.name, NAME_LIMIT_BYTES);
    enum status status = selection_init(&writer.selection, profile, options);
    if (status == STATUS_OK) {
        writer.frames = calloc(selection_max_depth(&writer.selection) + 1, sizeof writer.frames[0]);
        status = writer.frames != NULL ? put_document(&writer) : STATUS_FAILED;
    }
    free(writer.frames);
    buffer_release(&writer.name);
    selection_release(&writer.selection);
    return export_finish(status, stream, error);
}
