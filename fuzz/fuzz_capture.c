/* Captures of any bytes. First byte 0: the rest is the file. Else the rest is payloads, each behind two bytes with its
 * length and one whose lowest bit begins an epoch: they get headers and checksums, which no fuzzer guesses. All that is
 * told goes into a profile and is attributed, and must keep what profile.h promises. Merged with itself it is a whole
 * capture of twice as many processes. */
#include "base/buffer.h"
#include "base/bytes.h"
#include "capture/copy.h"
#include "capture/format.h"
#include "profile/attribute.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

enum { MAX_INPUT_BYTES = 1 << 16, PIECE_HEADER_BYTES = 3 };

static void require(bool condition) {
    if (!condition)
        abort();
}

static void append_chunk(struct buffer *file, uint32_t sequence, uint32_t epoch, const uint8_t *payload,
                         uint32_t payload_bytes) {
    const uint32_t numbers[] = {sequence, payload_bytes, payload_bytes, epoch};
    void *room = NULL;
    require(buffer_extend(file, CAPTURE_CHUNK_HEADER_BYTES + payload_bytes, &room) == STATUS_OK);
    uint8_t *chunk = room;
    memset(chunk, 0, CAPTURE_CHUNK_HEADER_BYTES);
    memcpy(chunk, CAPTURE_CHUNK_MAGIC, CAPTURE_CHUNK_MAGIC_BYTES);
    chunk[4] = CAPTURE_CHUNK_RECORDS;
    memcpy(chunk + 8, numbers, sizeof numbers);
    if (payload_bytes > 0)
        memcpy(chunk + CAPTURE_CHUNK_HEADER_BYTES, payload, payload_bytes);
    uint64_t checksum = capture_checksum(chunk, payload_bytes);
    memcpy(chunk + CAPTURE_CHECKSUM_OFFSET, &checksum, sizeof checksum);
}

static void wrap_payloads(const uint8_t *data, size_t size_bytes, struct buffer *file) {
    static const uint8_t HEADER[CAPTURE_FILE_HEADER_BYTES] = CAPTURE_FILE_MAGIC "\x01";
    uint32_t epoch = 0;
    require(buffer_append(file, HEADER, sizeof HEADER) == STATUS_OK);
    for (uint32_t sequence = 0; size_bytes >= PIECE_HEADER_BYTES; sequence++) {
        size_t payload_bytes = load_u16(data);
        epoch += data[2] & 1;
        data += PIECE_HEADER_BYTES;
        size_bytes -= PIECE_HEADER_BYTES;
        payload_bytes = payload_bytes < size_bytes ? payload_bytes : size_bytes;
        append_chunk(file, sequence, epoch, data, (uint32_t)payload_bytes);
        data += payload_bytes;
        size_bytes -= payload_bytes;
    }
}

static void check_profile(const struct profile *profile) {
    for (size_t i = 1; i < profile->stack_count; i++) {
        const struct profile_stack *stack = &profile->stacks[i];
        require(stack->parent < i && stack->frame > 0 && stack->frame < profile->frame_count);
        require(stack->depth == profile->stacks[stack->parent].depth + 1);
    }
    for (size_t i = 0; i < profile->thread_count; i++)
        require(profile->threads[i].process < profile->process_count);
    for (size_t i = 0; i < profile->entry_count; i++)
        require(profile->entries[i].thread < profile->thread_count && profile->entries[i].stack < profile->stack_count);
    for (size_t i = 1; i < profile->sample_count; i++)
        require(profile->samples[i - 1].time_ns <= profile->samples[i].time_ns);
}

static void check_attribution(const struct profile *profile) {
    struct attribution result;
    require(attribute_profile(profile, NULL, &result, NULL) == STATUS_OK);
    uint64_t samples = 0;
    for (size_t i = 0; i < result.line_count; i++) {
        require(result.lines[i].self[MEASURE_SAMPLES] <= result.lines[i].total[MEASURE_SAMPLES]);
        require(!__builtin_add_overflow(samples, result.lines[i].self[MEASURE_SAMPLES], &samples) ||
                result.sums[MEASURE_SAMPLES] == UINT64_MAX);
    }
    require(samples == result.sums[MEASURE_SAMPLES] || result.sums[MEASURE_SAMPLES] == UINT64_MAX);
    attribution_release(&result);
}

static int new_file(const struct buffer *content, char path[32]) {
    int descriptor = memfd_create("capture", MFD_CLOEXEC);
    require(descriptor >= 0 &&
            write(descriptor, buffer_text(content), content->size_bytes) == (ssize_t)content->size_bytes);
    (void)snprintf(path, 32, "/proc/self/fd/%d", descriptor);
    return descriptor;
}

static void check_merged(const struct buffer *file, size_t process_count) {
    static const struct buffer NOTHING = {0};
    char source[32], merged[32];
    int descriptors[] = {new_file(file, source), new_file(&NOTHING, merged)};
    struct capture_merge merge = {0};
    struct capture_writer *writer = NULL;
    struct profile *profile = profile_new();
    require(profile != NULL);
    require(capture_writer_open_descriptor(dup(descriptors[1]), NULL, &writer, NULL) == STATUS_OK);
    for (int i = 0; i < 2; i++) {
        enum status status = capture_copy(source, writer, &merge, NULL);
        require(status == STATUS_OK || status == STATUS_DAMAGED);
    }
    require(capture_writer_close(writer, NULL) == STATUS_OK);
    require(profile_add_capture(profile, merged, NULL, NULL) == STATUS_OK);
    require(profile->process_count == 2 * process_count);
    check_profile(profile);
    check_attribution(profile);
    profile_free(profile);
    (void)close(descriptors[0]);
    (void)close(descriptors[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    struct buffer file;
    if (size_bytes == 0 || size_bytes > MAX_INPUT_BYTES)
        return 0;
    buffer_init(&file, 4 << 20);
    if (data[0] == 0)
        require(buffer_append(&file, data + 1, size_bytes - 1) == STATUS_OK);
    else
        wrap_payloads(data + 1, size_bytes - 1, &file);
    struct profile *profile = profile_new();
    struct profile_load_options options = {.with_samples = true, .max_samples = 100000};
    struct error error = {0};
    require(profile != NULL);
    enum status status =
        profile_add_capture_bytes(profile, (const uint8_t *)buffer_text(&file), file.size_bytes, &options, &error);
    require(status == STATUS_OK || status == STATUS_DAMAGED);
    require((status == STATUS_OK) == (error.status == STATUS_OK));
    check_profile(profile);
    check_attribution(profile);
    check_merged(&file, profile->process_count);
    profile_free(profile);
    buffer_release(&file);
    return 0;
}
