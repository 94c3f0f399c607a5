/* The file, its chunks and epochs. */
#include "capture/writer.h"

#include "base/message.h"
#include "capture/writer_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct capture_writer_options DEFAULTS = {
    .tick_ns = 1000,
    .flush_period_ns = 1000000000,
    .chunk_bytes = 64 << 10,
    .max_strings = 1 << 16,
    .max_frames = 1 << 16,
    .max_stacks = 1 << 18,
    .compression_level = 1,
};

uint64_t capture_tick_ns(double rate_hz) {
    /* A fiftieth of the period, rounded down to 1, 2 or 5 × 10^n: with the schedule's jitter a time is then worth five
     * or six bits. */
    uint64_t tick_ns = 1;
    if (!(rate_hz > 0))
        return DEFAULTS.tick_ns;
    double fiftieth_ns = 1e9 / rate_hz / 50;
    double most_ns = fiftieth_ns < 1e7 ? fiftieth_ns : 1e7;
    for (uint64_t decade = 1; (double)decade <= most_ns; decade *= 10)
        for (uint64_t step = 1; step <= 5; step += step == 1 ? 1 : 3)
            if ((double)(decade * step) <= most_ns)
                tick_ns = decade * step;
    return tick_ns;
}

enum status writer_fail(struct capture_writer *writer, enum status status, const char *format, ...) {
    if (writer->error.status != STATUS_OK)
        return writer->error.status;
    va_list arguments;
    va_start(arguments, format);
    message_format(writer->error.text, sizeof writer->error.text, format, arguments);
    va_end(arguments);
    writer->error.status = status;
    return status;
}

static enum status no_memory(struct capture_writer *writer) {
    return writer_fail(writer, STATUS_FAILED, "cannot write the capture: out of memory");
}

static void fill_defaults(struct capture_writer_options *options) {
    options->tick_ns = options->tick_ns > 0 ? options->tick_ns : DEFAULTS.tick_ns;
    options->flush_period_ns = options->flush_period_ns > 0 ? options->flush_period_ns : DEFAULTS.flush_period_ns;
    options->chunk_bytes = options->chunk_bytes > 0 ? options->chunk_bytes : DEFAULTS.chunk_bytes;
    if (options->chunk_bytes > CAPTURE_CHUNK_MAX_BYTES / 2)
        options->chunk_bytes = CAPTURE_CHUNK_MAX_BYTES / 2;
    options->max_strings = options->max_strings > 0 ? options->max_strings : DEFAULTS.max_strings;
    options->max_frames = options->max_frames > 0 ? options->max_frames : DEFAULTS.max_frames;
    options->max_stacks = options->max_stacks > 0 ? options->max_stacks : DEFAULTS.max_stacks;
    if (options->compression_level == 0)
        options->compression_level = DEFAULTS.compression_level;
}

enum status capture_writer_open_descriptor(int descriptor, const struct capture_writer_options *options,
                                           struct capture_writer **writer, struct error *error) {
    struct capture_writer *made = calloc(1, sizeof *made);
    if (made == NULL) {
        (void)close(descriptor);
        return error_set(error, STATUS_FAILED, "cannot write the capture: out of memory");
    }
    if (options != NULL)
        made->options = *options;
    fill_defaults(&made->options);
    buffer_init(&made->chunk, CAPTURE_CHUNK_MAX_BYTES);
    made->next_string = made->next_frame = made->next_stack = made->next_thread = 1;
    enum status status =
        chunk_file_open(descriptor, made->options.compression_level, made->options.in_background, &made->file, error);
    if (status == STATUS_OK)
        *writer = made;
    else
        capture_writer_abandon(made);
    return status;
}

/* Two that write by turns would take each other's chunks for their own. A device bears that. */
static bool is_being_written(int descriptor) {
    struct stat info;
    return fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode) && flock(descriptor, LOCK_EX | LOCK_NB) != 0 &&
           errno == EWOULDBLOCK;
}

enum status capture_writer_open(const char *path, const struct capture_writer_options *options,
                                struct capture_writer **writer, struct error *error) {
    /* O_APPEND: whoever else holds the file open, a chunk lands whole. No O_TRUNC: there may be nothing to record. */
    int descriptor = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (descriptor < 0)
        return error_set(error, STATUS_FAILED, "cannot write %s: %s", path, strerror(errno));
    if (is_being_written(descriptor)) {
        (void)close(descriptor);
        return error_set(error, STATUS_FAILED, "cannot write %s: another strobe is writing it", path);
    }
    return capture_writer_open_descriptor(descriptor, options, writer, error);
}

void capture_writer_abandon(struct capture_writer *writer) {
    if (writer == NULL)
        return;
    chunk_file_close(writer->file);
    buffer_release(&writer->chunk);
    digest_map_release(&writer->strings);
    digest_map_release(&writer->frames);
    digest_map_release(&writer->stacks);
    writer_release_kept(writer);
    free(writer);
}

static enum status await_file(struct capture_writer *writer) {
    enum status status = chunk_file_wait(writer->file);
    return status == STATUS_OK ? STATUS_OK : writer_fail(writer, status, "%s", chunk_file_complaint(writer->file));
}

static enum status write_end(struct capture_writer *writer) {
    uint8_t body[2 * VARINT_MAX_BYTES];
    size_t size_bytes = varint_put(body, writer->last_ns);
    size_bytes += varint_put(body + size_bytes, writer->sample_count);
    TRY(writer_append_record(writer, CAPTURE_RECORD_END, body, size_bytes));
    TRY(writer_write_chunk(writer));
    return await_file(writer);
}

enum status capture_writer_close(struct capture_writer *writer, struct error *error) {
    if (writer == NULL)
        return STATUS_OK;
    enum status status = writer->error.status != STATUS_OK ? writer->error.status : write_end(writer);
    if (status != STATUS_OK)
        (void)error_set(error, status, "%s", writer->error.text);
    capture_writer_abandon(writer);
    return status;
}

static enum status append(struct capture_writer *writer, const void *bytes, size_t size_bytes) {
    return buffer_append(&writer->chunk, bytes, size_bytes) == STATUS_OK ? STATUS_OK : no_memory(writer);
}

static enum status append_typed(struct capture_writer *writer, enum capture_record type, const void *body,
                                size_t size_bytes) {
    uint8_t head[1 + VARINT_MAX_BYTES] = {(uint8_t)type};
    TRY(append(writer, head, 1 + varint_put(head + 1, size_bytes)));
    return append(writer, body, size_bytes);
}

/* What makes a chunk stand for itself: the ids that its definitions get, and the time that its samples start from. */
static enum status open_chunk(struct capture_writer *writer) {
    struct error error = {0};
    enum status status = chunk_file_begin(writer->file, &error);
    if (status != STATUS_OK)
        return writer_fail(writer, status, "%s", error.text);
    writer->tick = writer->last_ns / writer->options.tick_ns;
    writer->previous_thread = 0;
    writer->chunk_started_ns = 0; /* until the next sample or flush says what time it is */
    writer->chunk_open = true;
    const uint64_t fields[] = {writer->next_string, writer->next_frame, writer->next_stack, writer->options.tick_ns,
                               writer->tick};
    uint8_t body[sizeof fields / sizeof fields[0] * VARINT_MAX_BYTES];
    size_t size_bytes = 0;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        size_bytes += varint_put(body + size_bytes, fields[i]);
    return append_typed(writer, CAPTURE_RECORD_BASE, body, size_bytes);
}

enum status writer_prepare(struct capture_writer *writer, size_t more_bytes) {
    if (writer->error.status != STATUS_OK)
        return writer->error.status;
    if (writer->chunk_open && writer->chunk.size_bytes + more_bytes > CAPTURE_CHUNK_MAX_BYTES)
        TRY(writer_write_chunk(writer));
    return writer->chunk_open ? STATUS_OK : open_chunk(writer);
}

enum status writer_append_record(struct capture_writer *writer, enum capture_record type, const void *body,
                                 size_t size_bytes) {
    TRY(writer_prepare(writer, size_bytes + 1 + VARINT_MAX_BYTES));
    return append_typed(writer, type, body, size_bytes);
}

enum status writer_write_chunk(struct capture_writer *writer) {
    if (writer->error.status != STATUS_OK)
        return writer->error.status;
    if (!writer->chunk_open)
        return STATUS_OK;
    enum status status = chunk_file_write(writer->file, &writer->chunk, writer->epoch);
    if (status != STATUS_OK)
        return writer_fail(writer, status, "%s", chunk_file_complaint(writer->file));
    writer->chunk_open = false;
    writer->chunk_count++;
    return STATUS_OK;
}

enum status capture_writer_start_epoch(struct capture_writer *writer) {
    TRY(writer_write_chunk(writer));
    digest_map_clear(&writer->strings);
    digest_map_clear(&writer->frames);
    digest_map_clear(&writer->stacks);
    writer->next_string = writer->next_frame = writer->next_stack = 1;
    writer->epoch++;
    return writer_repeat_kept(writer);
}

static bool tables_are_full(const struct capture_writer *writer) {
    return writer->next_string > writer->options.max_strings || writer->next_frame > writer->options.max_frames ||
           writer->next_stack > writer->options.max_stacks;
}

enum status writer_settle(struct capture_writer *writer, uint64_t now_ns) {
    if (now_ns > writer->last_ns)
        writer->last_ns = now_ns;
    if (writer->chunk_started_ns == 0)
        writer->chunk_started_ns = now_ns;
    if (tables_are_full(writer))
        return capture_writer_start_epoch(writer);
    bool is_old =
        now_ns >= writer->chunk_started_ns && now_ns - writer->chunk_started_ns >= writer->options.flush_period_ns;
    return is_old || writer->chunk.size_bytes >= writer->options.chunk_bytes ? writer_write_chunk(writer) : STATUS_OK;
}

enum status capture_writer_flush(struct capture_writer *writer, uint64_t now_ns) {
    if (now_ns == UINT64_MAX) {
        TRY(writer_write_chunk(writer));
        return await_file(writer);
    }
    return writer->error.status != STATUS_OK ? writer->error.status : writer_settle(writer, now_ns);
}

uint32_t capture_writer_epoch(const struct capture_writer *writer) {
    return writer->epoch;
}

const struct error *capture_writer_error(const struct capture_writer *writer) {
    return &writer->error;
}

uint64_t capture_writer_size_bytes(const struct capture_writer *writer) {
    return chunk_file_size_bytes(writer->file);
}
