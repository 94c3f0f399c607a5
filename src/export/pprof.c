/* pprof's profile.proto (https://github.com/google/pprof/blob/main/proto/profile.proto), gzipped. Protocol buffers of
 * one type may be written one behind the other, and mean their sum: so each sample, location and function goes out as
 * it comes. Only the strings' numbers are kept. */
#include "base/buffer.h"
#include "base/map.h"
#include "export/export.h"
#include "export/functions.h"
#include "export/gzip.h"
#include "export/names.h"
#include "export/protobuf.h"
#include "export/selection.h"

#include <string.h>

enum { MESSAGE_LIMIT_BYTES = 1 << 26 };

/* Field numbers of profile.proto. */
enum {
    PROFILE_SAMPLE_TYPE = 1,
    PROFILE_SAMPLE = 2,
    PROFILE_MAPPING = 3,
    PROFILE_LOCATION = 4,
    PROFILE_FUNCTION = 5,
    PROFILE_STRING = 6,
    PROFILE_TIME_NANOS = 9,
    PROFILE_DURATION_NANOS = 10,
    PROFILE_PERIOD_TYPE = 11,
    PROFILE_PERIOD = 12,
    PROFILE_COMMENT = 13,
    PROFILE_DEFAULT_SAMPLE_TYPE = 14
};
enum { TYPE_TYPE = 1, TYPE_UNIT = 2 };
enum { SAMPLE_LOCATION = 1, SAMPLE_VALUE = 2, SAMPLE_LABEL = 3 };
enum { LABEL_KEY = 1, LABEL_STRING = 2, LABEL_NUMBER = 3 };
enum { MAPPING_ID = 1, MAPPING_FILE = 5, MAPPING_HAS_FUNCTIONS = 7, MAPPING_HAS_FILES = 8, MAPPING_HAS_LINES = 9 };
enum { LOCATION_ID = 1, LOCATION_MAPPING = 2, LOCATION_LINE = 4 };
enum { LINE_FUNCTION = 1, LINE_LINE = 2 };
enum { FUNCTION_ID = 1, FUNCTION_NAME = 2, FUNCTION_SYSTEM_NAME = 3, FUNCTION_FILE = 4, FUNCTION_START_LINE = 5 };

struct writer {
    const struct profile *profile;
    enum measure main;
    struct selection selection;
    struct functions functions;
    struct gzip gzip;
    struct map strings; /* address of an interned or static text -> its number */
    uint64_t string_count;
    struct buffer whole;  /* the message that goes out next */
    struct buffer part;   /* a message in it */
    struct buffer inner;  /* and one in that */
    struct buffer packed; /* numbers of a packed field */
};

static enum status put_bytes(struct writer *writer, uint32_t field, const void *bytes, size_t size_bytes) {
    buffer_clear(&writer->whole);
    TRY(protobuf_append_bytes(&writer->whole, field, bytes, size_bytes));
    gzip_write(&writer->gzip, writer->whole.data, writer->whole.size_bytes);
    return STATUS_OK;
}

static enum status put_part(struct writer *writer, uint32_t field) {
    return put_bytes(writer, field, buffer_text(&writer->part), writer->part.size_bytes);
}

static enum status put_number(struct writer *writer, uint32_t field, uint64_t value) {
    buffer_clear(&writer->whole);
    TRY(protobuf_append_number(&writer->whole, field, value));
    gzip_write(&writer->gzip, buffer_text(&writer->whole), writer->whole.size_bytes);
    return STATUS_OK;
}

/* Text that lives only now gets a number each time it is put. */
static enum status put_new_string(struct writer *writer, const char *text, uint64_t *number) {
    *number = writer->string_count++;
    return put_bytes(writer, PROFILE_STRING, text, strlen(text));
}

/* Text that stays where it is gets one number. The first string has to be "". */
static enum status put_string(struct writer *writer, const char *text, uint64_t *number) {
    if (map_get(&writer->strings, (uintptr_t)text, number))
        return STATUS_OK;
    if (text[0] == '\0') {
        *number = 0;
        return STATUS_OK;
    }
    TRY(put_new_string(writer, text, number));
    return map_set(&writer->strings, (uintptr_t)text, *number);
}

static enum status append_string(struct writer *writer, struct buffer *message, uint32_t field, const char *text) {
    uint64_t number;
    TRY(put_string(writer, text, &number));
    return protobuf_append_number(message, field, number);
}

static const char *unit_name(enum measure measure) {
    static const char *const units[] = {[UNIT_COUNT] = "count", [UNIT_NS] = "nanoseconds", [UNIT_BYTES] = "bytes"};
    return units[measure_unit(measure)];
}

/* Memory has names that pprof's users know. */
static const char *type_name(enum measure measure) {
    static const char *const NAMES[MEASURE_COUNT] = {
        [MEASURE_ALLOC_BYTES] = "alloc_space", [MEASURE_ALLOC_COUNT] = "alloc_objects",
        [MEASURE_LIVE_BYTES] = "inuse_space",  [MEASURE_LIVE_COUNT] = "inuse_objects",
        [MEASURE_PEAK_BYTES] = "peak_space",   [MEASURE_PYTHON_BYTES] = "alloc_python_space",
        [MEASURE_COPY_BYTES] = "copy",         [MEASURE_TEMPORARY_BYTES] = "temporary_space",
    };
    return NAMES[measure] != NULL ? NAMES[measure] : measure_name(measure);
}

static enum status put_value_type(struct writer *writer, uint32_t field, enum measure measure) {
    buffer_clear(&writer->part);
    TRY(append_string(writer, &writer->part, TYPE_TYPE, type_name(measure)));
    TRY(append_string(writer, &writer->part, TYPE_UNIT, unit_name(measure)));
    return put_part(writer, field);
}

/* The default one always: pprof refuses a profile without any. */
static bool has_type(const struct writer *writer, enum measure measure) {
    return profile_has(writer->profile, measure) || measure == writer->main;
}

static enum status put_head(struct writer *writer) {
    const struct profile *profile = writer->profile;
    enum measure main = writer->main;
    uint64_t number;
    TRY(put_new_string(writer, "", &number));
    for (enum measure measure = 0; measure < MEASURE_SHOWN; measure++)
        if (has_type(writer, measure))
            TRY(put_value_type(writer, PROFILE_SAMPLE_TYPE, measure));
    TRY(put_string(writer, type_name(main), &number));
    TRY(put_number(writer, PROFILE_DEFAULT_SAMPLE_TYPE, number));
    TRY(put_number(writer, PROFILE_TIME_NANOS, profile->start_unix_ns));
    TRY(put_number(writer, PROFILE_DURATION_NANOS, profile->elapsed_ns));
    if (profile->process_count == 0 || !(profile->processes[0].rate_hz > 0) || measure_unit(main) != UNIT_NS)
        return STATUS_OK;
    TRY(put_value_type(writer, PROFILE_PERIOD_TYPE, main));
    return put_number(writer, PROFILE_PERIOD, (uint64_t)(1e9 / profile->processes[0].rate_hz));
}

/* One mapping, the interpreter, whose functions, files and lines are all known: without it pprof looks for symbols. */
static enum status put_mapping(struct writer *writer) {
    const struct profile *profile = writer->profile;
    bool has_command = profile->process_count > 0 && profile->processes[0].command_count > 0;
    buffer_clear(&writer->part);
    TRY(protobuf_append_number(&writer->part, MAPPING_ID, 1));
    TRY(append_string(writer, &writer->part, MAPPING_FILE, has_command ? profile->processes[0].command[0] : "python"));
    TRY(protobuf_append_number(&writer->part, MAPPING_HAS_FUNCTIONS, 1));
    TRY(protobuf_append_number(&writer->part, MAPPING_HAS_FILES, 1));
    TRY(protobuf_append_number(&writer->part, MAPPING_HAS_LINES, 1));
    TRY(put_part(writer, PROFILE_MAPPING));
    if (!has_command)
        return STATUS_OK;
    uint64_t number;
    buffer_clear(&writer->part);
    TRY(name_append_command(&writer->part, &profile->processes[0]));
    buffer_clear(&writer->inner);
    TRY(buffer_append(&writer->inner, buffer_text(&writer->part), writer->part.size_bytes));
    TRY(put_new_string(writer, buffer_text(&writer->inner), &number));
    return put_number(writer, PROFILE_COMMENT, number);
}

static enum status put_functions(struct writer *writer) {
    for (size_t i = 1; i < writer->functions.count; i++) {
        const struct profile_frame *frame = &writer->profile->frames[writer->functions.one_frame[i]];
        buffer_clear(&writer->part);
        TRY(protobuf_append_number(&writer->part, FUNCTION_ID, i));
        TRY(append_string(writer, &writer->part, FUNCTION_NAME, name_of_frame(frame)));
        /* A name that is the system's name too is taken for C++, and `<module>` for a template's arguments. */
        if (name_of_function(frame) != name_of_frame(frame))
            TRY(append_string(writer, &writer->part, FUNCTION_SYSTEM_NAME, name_of_function(frame)));
        TRY(append_string(writer, &writer->part, FUNCTION_FILE, frame->file));
        TRY(protobuf_append_number(&writer->part, FUNCTION_START_LINE,
                                   frame->first_line > 0 ? (uint64_t)frame->first_line : 0));
        TRY(put_part(writer, PROFILE_FUNCTION));
    }
    return STATUS_OK;
}

/* A location is a frame: its number is the frame's. */
static enum status put_locations(struct writer *writer) {
    for (size_t i = 1; i < writer->profile->frame_count; i++) {
        const struct profile_frame *frame = &writer->profile->frames[i];
        buffer_clear(&writer->inner);
        TRY(protobuf_append_number(&writer->inner, LINE_FUNCTION, writer->functions.of_frame[i]));
        TRY(protobuf_append_number(&writer->inner, LINE_LINE, frame->line > 0 ? (uint64_t)frame->line : 0));
        buffer_clear(&writer->part);
        TRY(protobuf_append_number(&writer->part, LOCATION_ID, i));
        TRY(protobuf_append_number(&writer->part, LOCATION_MAPPING, 1));
        TRY(protobuf_append_bytes(&writer->part, LOCATION_LINE, writer->inner.data, writer->inner.size_bytes));
        TRY(put_part(writer, PROFILE_LOCATION));
    }
    return STATUS_OK;
}

static enum status append_label(struct writer *writer, const char *key, const char *text, uint64_t number) {
    buffer_clear(&writer->inner);
    TRY(append_string(writer, &writer->inner, LABEL_KEY, key));
    if (text != NULL)
        TRY(append_string(writer, &writer->inner, LABEL_STRING, text));
    TRY(protobuf_append_number(&writer->inner, LABEL_NUMBER, number));
    return protobuf_append_bytes(&writer->part, SAMPLE_LABEL, writer->inner.data, writer->inner.size_bytes);
}

static enum status append_labels(struct writer *writer, uint32_t thread_index) {
    const struct profile_thread *thread = &writer->profile->threads[thread_index];
    if (thread->name[0] != '\0')
        TRY(append_label(writer, "thread", thread->name, 0));
    TRY(append_label(writer, "thread_id", NULL, thread->native_id));
    return append_label(writer, "pid", NULL, (uint64_t)writer->profile->processes[thread->process].pid);
}

static enum status append_packed(struct writer *writer, uint32_t field) {
    return protobuf_append_bytes(&writer->part, field, buffer_text(&writer->packed), writer->packed.size_bytes);
}

static enum status put_sample(struct writer *writer, size_t entry) {
    const struct profile *profile = writer->profile;
    const struct selection *selection = &writer->selection;
    buffer_clear(&writer->part);
    buffer_clear(&writer->packed);
    uint32_t at = selection_stack(selection, profile->entries[entry].stack);
    for (; at != 0; at = selection_caller(selection, at))
        TRY(protobuf_append_varint(&writer->packed, profile->stacks[at].frame));
    TRY(append_packed(writer, SAMPLE_LOCATION));
    buffer_clear(&writer->packed);
    for (enum measure measure = 0; measure < MEASURE_SHOWN; measure++)
        if (has_type(writer, measure))
            TRY(protobuf_append_varint(&writer->packed, profile_value(profile, entry, measure)));
    TRY(append_packed(writer, SAMPLE_VALUE));
    TRY(append_labels(writer, profile->entries[entry].thread));
    return put_part(writer, PROFILE_SAMPLE);
}

static enum status put_samples(struct writer *writer) {
    for (size_t i = 0; i < writer->profile->entry_count; i++) {
        const struct profile_entry *entry = &writer->profile->entries[i];
        if (selection_has(&writer->selection, entry->thread, entry->stack))
            TRY(put_sample(writer, i));
    }
    return STATUS_OK;
}

static enum status put_profile(struct writer *writer) {
    TRY(put_head(writer));
    TRY(put_mapping(writer));
    TRY(put_functions(writer));
    TRY(put_locations(writer));
    TRY(put_samples(writer));
    gzip_finish(&writer->gzip);
    return STATUS_OK;
}

static void init_buffers(struct writer *writer) {
    buffer_init(&writer->whole, MESSAGE_LIMIT_BYTES);
    buffer_init(&writer->part, MESSAGE_LIMIT_BYTES);
    buffer_init(&writer->inner, MESSAGE_LIMIT_BYTES);
    buffer_init(&writer->packed, MESSAGE_LIMIT_BYTES);
}

static void release(struct writer *writer) {
    buffer_release(&writer->whole);
    buffer_release(&writer->part);
    buffer_release(&writer->inner);
    buffer_release(&writer->packed);
    map_release(&writer->strings);
    functions_release(&writer->functions);
    selection_release(&writer->selection);
}

enum status export_write_pprof(const struct profile *profile, const struct export_options *options, FILE *stream,
                               struct error *error) {
    struct writer writer = {.profile = profile, .main = export_measure(profile, options)};
    init_buffers(&writer);
    enum status status = selection_init(&writer.selection, profile, options);
    if (status == STATUS_OK)
        status = functions_init(&writer.functions, profile, true);
    if (status == STATUS_OK)
        status = gzip_init(&writer.gzip, stream);
    if (status == STATUS_OK) {
        status = put_profile(&writer);
        gzip_release(&writer.gzip);
    }
    release(&writer);
    return export_finish(status, stream, error);
}
