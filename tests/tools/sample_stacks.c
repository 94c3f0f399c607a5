/* Samples a process and prints, as JSON, the sampler's counters and how often each stack was seen:
 *   sample_stacks PID RATE_HZ SECONDS [--blocking]
 *   {"taken": …, "missed": …, "inconsistent": …, "errors": …, "stacks": {"NAME@FIRST_LINE:LINE;…": count}}
 * outermost frame first; FIRST_LINE is that of the function, LINE the current one (0: none). */
#include "base/buffer.h"
#include "base/clock.h"
#include "sampler/sampler.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_KEY_BYTES = 1 << 20 };

struct counting {
    struct sample_sink sink;
    struct sample_counters counters;
    json_t *stacks;
    struct buffer key;
};

static enum status take_process(struct sample_sink *sink, struct sampled_process *process) {
    (void)sink;
    (void)process;
    return STATUS_OK;
}

static enum status take_process_end(struct sample_sink *sink, struct sampled_process *process,
                                    const struct sample_counters *counters) {
    (void)process;
    ((struct counting *)sink)->counters = *counters;
    return STATUS_OK;
}

static enum status take_thread(struct sample_sink *sink, struct sampled_thread *thread) {
    (void)sink;
    (void)thread;
    return STATUS_OK;
}

static enum status take_idle(struct sample_sink *sink, uint64_t now_ns) {
    (void)sink;
    (void)now_ns;
    return STATUS_OK;
}

static enum status put_frame(struct buffer *key, const struct sample_frame *frame, bool first) {
    const char *separator = first ? "" : ";";
    struct source_position position = {0};
    if (frame->code == NULL)
        return buffer_append_format(key, "%s-", separator);
    code_position(frame->code, frame->instruction_bytes < 0 ? 0 : (uint32_t)frame->instruction_bytes, &position);
    return buffer_append_format(key, "%s%s@%" PRId32 ":%" PRId32, separator, frame->code->name,
                                frame->code->lines.first_line, position.line > 0 ? position.line : 0);
}

static enum status take_sample(struct sample_sink *sink, const struct sample *sample) {
    struct counting *counting = (struct counting *)sink;
    buffer_clear(&counting->key);
    for (size_t i = 0; i < sample->count; i++)
        TRY(put_frame(&counting->key, &sample->frames[i], i == 0));
    const char *key = buffer_text(&counting->key);
    json_t *count = json_object_get(counting->stacks, key);
    if (count != NULL)
        return json_integer_set(count, json_integer_value(count) + 1) == 0 ? STATUS_OK : STATUS_FAILED;
    return json_object_set_new(counting->stacks, key, json_integer(1)) == 0 ? STATUS_OK : STATUS_FAILED;
}

static int print_counts(const struct counting *counting) {
    const struct sample_counters *counters = &counting->counters;
    json_t *result = json_pack("{s:I, s:I, s:I, s:I, s:O}", "taken", (json_int_t)counters->taken, "missed",
                               (json_int_t)counters->missed, "inconsistent", (json_int_t)counters->inconsistent,
                               "errors", (json_int_t)counters->errors, "stacks", counting->stacks);
    int failed = result == NULL || json_dumpf(result, stdout, JSON_INDENT(1)) != 0 || fputc('\n', stdout) == EOF;
    json_decref(result);
    return failed;
}

int main(int argc, char **argv) {
    if (argc < 4) {
        (void)fprintf(stderr, "usage: sample_stacks PID RATE_HZ SECONDS [--blocking]\n");
        return 2;
    }
    struct counting counting = {.sink = {.process_started = take_process,
                                         .process_ended = take_process_end,
                                         .thread_started = take_thread,
                                         .thread_renamed = take_thread,
                                         .thread_ended = take_thread,
                                         .sample = take_sample,
                                         .idle = take_idle,
                                         .code_forgotten = take_process},
                                .stacks = json_object()};
    struct sampler_options options = {.rate_hz = strtod(argv[2], NULL),
                                      .duration_ns = (uint64_t)(strtod(argv[3], NULL) * (double)NS_PER_S)};
    options.target.blocking = argc > 4 && strcmp(argv[4], "--blocking") == 0;
    volatile sig_atomic_t stop = 0;
    struct process *process = NULL;
    struct error error = {0};
    buffer_init(&counting.key, MAX_KEY_BYTES);
    struct sampler *sampler = NULL;
    if (process_open((pid_t)strtol(argv[1], NULL, 10), &process, &error) != STATUS_OK ||
        sampler_new(&options, &counting.sink, &sampler, &error) != STATUS_OK ||
        sampler_add(sampler, process, &error) != STATUS_OK || sampler_run(sampler, &stop, &error) != STATUS_OK ||
        sampler_free(sampler) != STATUS_OK) {
        (void)fprintf(stderr, "sample_stacks: %s\n", error.text);
        return 1;
    }
    int failed = print_counts(&counting);
    buffer_release(&counting.key);
    json_decref(counting.stacks);
    return failed;
}
