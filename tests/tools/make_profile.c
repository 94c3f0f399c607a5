/* Makes a profile of a description in JSON on standard input, and writes it in a format to standard output.
 *
 * usage: make_profile FORMAT [--all] [--only GLOB] [--exclude GLOB] [--thread NUMBER] < DESCRIPTION
 *
 * {"processes": [{"pid", "python", "mode": "wall" | "cpu", "rate_hz", "command": [...]}],
 *  "threads": [{"process", "native_id", "name"}],
 *  "frames": [{"kind", "function", "qualname", "file", "line", "column", "first_line"}],
 *  "stacks": [[frame, ...]], outermost first,
 *  "samples": [[thread, stack, time_ns, weight_ns, run]],
 *  "values": [[thread, stack, measure, amount]],
 *  "counters": {"taken", "missed", "inconsistent", "errors"}}
 * where most things may be left out, and numbers of frames, stacks, threads and processes count from 0. */
#include "export/export.h"
#include "profile/build.h"
#include "terminal/report_table.h"
#include "terminal/source.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static struct capture_text text_of(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return (struct capture_text){json_string_value(value), json_string_length(value)};
}

static int64_t number_of(const json_t *object, const char *key, int64_t otherwise) {
    const json_t *value = json_object_get(object, key);
    return value != NULL ? (int64_t)json_number_value(value) : otherwise;
}

static int64_t item(const json_t *array, size_t index) {
    return (int64_t)json_number_value(json_array_get(array, index));
}

static enum status add_process(struct profile *profile, const json_t *value) {
    enum { MAX_WORDS = 64 };
    struct capture_text command[MAX_WORDS];
    const json_t *words = json_object_get(value, "command");
    size_t count = json_array_size(words) < MAX_WORDS ? json_array_size(words) : MAX_WORDS;
    for (size_t i = 0; i < count; i++)
        command[i] = (struct capture_text){json_string_value(json_array_get(words, i)),
                                           json_string_length(json_array_get(words, i))};
    const char *mode = json_string_value(json_object_get(value, "mode"));
    struct capture_process process = {
        .pid = (int32_t)number_of(value, "pid", 42),
        .python_version = (uint32_t)number_of(value, "python", 0x030d02f0),
        .mode = mode != NULL && strcmp(mode, "cpu") == 0 ? CAPTURE_MODE_CPU : CAPTURE_MODE_WALL,
        .rate_millihertz = (uint64_t)number_of(value, "rate_hz", 1000) * 1000,
        .start_unix_ns = 1790000000000000000,
        .command = command,
        .command_count = count,
    };
    uint32_t index;
    return profile_append_process(profile, &process, &index);
}

static enum status add_thread(struct profile *profile, const json_t *value) {
    struct capture_thread thread = {
        .process = (uint32_t)number_of(value, "process", 0),
        .native_id = (uint64_t)number_of(value, "native_id", 0),
        .name = text_of(value, "name"),
    };
    uint32_t index;
    return profile_append_thread(profile, &thread, &index);
}

static enum status add_frame(struct profile *profile, const json_t *value, uint32_t *frame) {
    struct profile_frame_key key = {
        .kind = (enum capture_frame_kind)number_of(value, "kind", CAPTURE_FRAME_PYTHON),
        .function = text_of(value, "function"),
        .qualname = text_of(value, "qualname"),
        .file = text_of(value, "file"),
        .line = (int32_t)number_of(value, "line", -1),
        .end_line = -1,
        .column = (int32_t)number_of(value, "column", -1),
        .end_column = -1,
        .first_line = (int32_t)number_of(value, "first_line", -1),
    };
    return profile_intern_frame(profile, &key, frame);
}

static enum status add_stacks(struct profile *profile, const json_t *description, uint32_t *stacks) {
    const json_t *frame_list = json_object_get(description, "frames");
    const json_t *stack_list = json_object_get(description, "stacks");
    uint32_t *frames = calloc(json_array_size(frame_list) + 1, sizeof frames[0]);
    enum status status = frames != NULL ? STATUS_OK : STATUS_FAILED;
    for (size_t i = 0; i < json_array_size(frame_list) && status == STATUS_OK; i++)
        status = add_frame(profile, json_array_get(frame_list, i), &frames[i]);
    for (size_t i = 0; i < json_array_size(stack_list) && status == STATUS_OK; i++) {
        const json_t *stack = json_array_get(stack_list, i);
        for (size_t j = 0; j < json_array_size(stack) && status == STATUS_OK; j++)
            status = profile_intern_stack(profile, stacks[i], frames[item(stack, j)], &stacks[i]);
    }
    free(frames);
    return status;
}

static enum status add_sample(struct profile *profile, const json_t *value, const uint32_t *stacks) {
    struct capture_sample sample = {
        .thread = (uint32_t)item(value, 0),
        .stack = stacks[item(value, 1)],
        .time_ns = (uint64_t)item(value, 2),
        .weight_ns = (uint64_t)item(value, 3),
        .run = (enum capture_run)item(value, 4),
    };
    return profile_add_sample(profile, &sample, true);
}

static enum status add_value(struct profile *profile, const json_t *value, const uint32_t *stacks) {
    const char *name = json_string_value(json_array_get(value, 2));
    for (enum measure measure = 0; measure < MEASURE_COUNT; measure++)
        if (strcmp(measure_name(measure), name) == 0)
            return profile_add_value(profile, (uint32_t)item(value, 0), stacks[item(value, 1)], measure,
                                     (uint64_t)item(value, 3));
    return STATUS_USAGE;
}

typedef enum status add_fn(struct profile *profile, const json_t *value);

static enum status add_each(struct profile *profile, const json_t *list, add_fn *add) {
    for (size_t i = 0; i < json_array_size(list); i++)
        TRY(add(profile, json_array_get(list, i)));
    return STATUS_OK;
}

static enum status add_counts(struct profile *profile, const json_t *description, const uint32_t *stacks) {
    const json_t *samples = json_object_get(description, "samples");
    const json_t *values = json_object_get(description, "values");
    const json_t *counters = json_object_get(description, "counters");
    for (size_t i = 0; i < json_array_size(samples); i++)
        TRY(add_sample(profile, json_array_get(samples, i), stacks));
    for (size_t i = 0; i < json_array_size(values); i++)
        TRY(add_value(profile, json_array_get(values, i), stacks));
    profile->counters = (struct capture_counters){
        .taken = (uint64_t)number_of(counters, "taken", (int64_t)json_array_size(samples)),
        .missed = (uint64_t)number_of(counters, "missed", 0),
        .inconsistent = (uint64_t)number_of(counters, "inconsistent", 0),
        .errors = (uint64_t)number_of(counters, "errors", 0),
    };
    return STATUS_OK;
}

static enum status build(struct profile *profile, const json_t *description) {
    uint32_t *stacks = calloc(json_array_size(json_object_get(description, "stacks")) + 1, sizeof stacks[0]);
    enum status status = stacks != NULL ? STATUS_OK : STATUS_FAILED;
    if (status == STATUS_OK)
        status = add_each(profile, json_object_get(description, "processes"), add_process);
    if (status == STATUS_OK)
        status = add_each(profile, json_object_get(description, "threads"), add_thread);
    if (status == STATUS_OK)
        status = add_stacks(profile, description, stacks);
    if (status == STATUS_OK)
        status = add_counts(profile, description, stacks);
    profile->start_unix_ns = 1790000000000000000;
    free(stacks);
    return status;
}

static enum status open_file(void *context, const char *path, int *fd) {
    (void)context;
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    return *fd >= 0 ? STATUS_OK : STATUS_NOT_FOUND;
}

static enum status find_line(void *context, const char *path, int32_t number, const char **text, size_t *size_bytes) {
    return source_line(context, path, number, text, size_bytes);
}

static enum status write_format(const struct profile *profile, const char *format,
                                const struct attribute_options *attribute, struct error *error) {
    struct source_cache *cache = source_cache_new(open_file, NULL, SOURCE_PYTHON);
    struct export_options options = {.attribute = attribute, .source = find_line, .source_context = cache};
    const struct export_format *found = export_find_name(format);
    enum status status = STATUS_USAGE;
    if (found != NULL) {
        status = found->write(profile, &options, stdout, error);
    } else if (strcmp(format, "table") == 0) {
        const char *width = getenv("COLUMNS");
        struct report_table_options table = {.attribute = attribute,
                                             .source = cache,
                                             .colour = getenv("COLOUR") != NULL,
                                             .width = width != NULL ? (size_t)atoi(width) : 0,
                                             .with_idle = true};
        status = report_table_write(profile, &table, stdout, error);
    }
    source_cache_free(cache);
    return status;
}

struct arguments {
    const char *format;
    const char *only;
    const char *exclude;
    struct attribute_options attribute;
};

static bool parse(int argc, char **argv, struct arguments *arguments) {
    *arguments = (struct arguments){.attribute = {.thread = ATTRIBUTE_ANY, .process = ATTRIBUTE_ANY}};
    arguments->format = argc > 1 ? argv[1] : NULL;
    for (int i = 2; i < argc; i++) {
        bool has_value = i + 1 < argc;
        if (strcmp(argv[i], "--all") == 0)
            arguments->attribute.all = true;
        else if (strcmp(argv[i], "--only") == 0 && has_value)
            arguments->only = argv[++i];
        else if (strcmp(argv[i], "--exclude") == 0 && has_value)
            arguments->exclude = argv[++i];
        else if (strcmp(argv[i], "--thread") == 0 && has_value)
            arguments->attribute.thread = atoi(argv[++i]);
        else
            return false;
    }
    arguments->attribute.only = &arguments->only;
    arguments->attribute.only_count = arguments->only != NULL;
    arguments->attribute.exclude = &arguments->exclude;
    arguments->attribute.exclude_count = arguments->exclude != NULL;
    return arguments->format != NULL;
}

int main(int argc, char **argv) {
    struct error error = {0};
    struct arguments arguments;
    json_error_t json_error;
    if (!parse(argc, argv, &arguments)) {
        fputs("usage: make_profile FORMAT [--all] [--only GLOB] [--exclude GLOB] [--thread NUMBER] < DESCRIPTION\n",
              stderr);
        return 2;
    }
    json_t *description = json_loadf(stdin, JSON_ALLOW_NUL, &json_error);
    if (description == NULL) {
        fprintf(stderr, "make_profile: line %d: %s\n", json_error.line, json_error.text);
        return 2;
    }
    struct profile *profile = profile_new();
    enum status status = profile != NULL ? build(profile, description) : STATUS_FAILED;
    json_decref(description);
    if (status == STATUS_OK)
        status = write_format(profile, arguments.format, &arguments.attribute, &error);
    if (status != STATUS_OK)
        fprintf(stderr, "make_profile: %s %s\n", status_name(status), error.text);
    profile_free(profile);
    return status == STATUS_OK && fflush(stdout) == 0 ? 0 : 1;
}
