#include "capture/output.h"

#include "capture/format.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

struct output {
    int descriptor;
    int compression_level;
    pid_t owner; /* who opened it: a child of its has the memory, but not the thread */
    ZSTD_CCtx *compressor;
    struct buffer stored; /* header and compressed payload */
    uint32_t sequence;

    /* With a thread, what follows is behind the lock. */
    bool in_background;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_busy; /* a payload waits to be written or is being written */
    bool is_closing;
    struct buffer payload;
    uint32_t epoch;
    uint64_t size_bytes;
    struct error error;
};

/* All of it, or the file is cut back to what it was, so that it ends with a whole chunk. */
static enum status write_bytes(struct output *output, const void *bytes, size_t size_bytes, struct error *error) {
    for (size_t done_bytes = 0; done_bytes < size_bytes;) {
        ssize_t written = write(output->descriptor, (const char *)bytes + done_bytes, size_bytes - done_bytes);
        if (written > 0) {
            done_bytes += (size_t)written;
        } else if (written == 0 || errno != EINTR) {
            int reason = written == 0 ? ENOSPC : errno;
            /* When that fails too, a reader meets a chunk that is cut. */
            int is_cut = ftruncate(output->descriptor, (off_t)output->size_bytes);
            (void)is_cut;
            return error_set(error, STATUS_FAILED, "cannot write the capture: %s", strerror(reason));
        }
    }
    return STATUS_OK;
}

/* Compresses the payload behind the place of its header. */
static enum status store_payload(struct output *output, uint8_t *flags, size_t *stored_bytes) {
    size_t raw_bytes = output->payload.size_bytes;
    size_t most_bytes = ZSTD_compressBound(raw_bytes);
    void *room = NULL;
    buffer_clear(&output->stored);
    TRY(buffer_extend(&output->stored, CAPTURE_CHUNK_HEADER_BYTES + most_bytes, &room));
    uint8_t *stored = (uint8_t *)room + CAPTURE_CHUNK_HEADER_BYTES;
    *stored_bytes = ZSTD_compressCCtx(output->compressor, stored, most_bytes, output->payload.data, raw_bytes,
                                      output->compression_level);
    *flags = CAPTURE_CHUNK_ZSTD;
    /* What does not shrink is stored as it is, and so is everything when zstd has no memory. */
    if (ZSTD_isError(*stored_bytes) || *stored_bytes >= raw_bytes) {
        memcpy(stored, output->payload.data, raw_bytes);
        *stored_bytes = raw_bytes;
        *flags = 0;
    }
    return STATUS_OK;
}

static void fill_header(const struct output *output, uint8_t flags, size_t stored_bytes, uint8_t *bytes) {
    const uint32_t numbers[] = {output->sequence, (uint32_t)output->payload.size_bytes, (uint32_t)stored_bytes,
                                output->epoch};
    memset(bytes, 0, CAPTURE_CHUNK_HEADER_BYTES);
    memcpy(bytes, CAPTURE_CHUNK_MAGIC, CAPTURE_CHUNK_MAGIC_BYTES);
    bytes[4] = CAPTURE_CHUNK_RECORDS;
    bytes[5] = flags;
    memcpy(bytes + 8, numbers, sizeof numbers);
    uint64_t checksum = capture_checksum(bytes, stored_bytes);
    memcpy(bytes + CAPTURE_CHECKSUM_OFFSET, &checksum, sizeof checksum);
}

static enum status write_chunk(struct output *output, uint64_t *chunk_bytes, struct error *error) {
    uint8_t flags = 0;
    size_t stored_bytes = 0;
    if (store_payload(output, &flags, &stored_bytes) != STATUS_OK)
        return error_set(error, STATUS_FAILED, "cannot write the capture: out of memory");
    fill_header(output, flags, stored_bytes, (uint8_t *)output->stored.data);
    *chunk_bytes = CAPTURE_CHUNK_HEADER_BYTES + stored_bytes;
    output->sequence++;
    return write_bytes(output, output->stored.data, (size_t)*chunk_bytes, error);
}

/* Writes output->payload; the lock is held, but not meanwhile. */
static void write_unlocked(struct output *output) {
    struct error error = {0};
    uint64_t chunk_bytes = 0;
    (void)pthread_mutex_unlock(&output->lock);
    enum status status = write_chunk(output, &chunk_bytes, &error);
    (void)pthread_mutex_lock(&output->lock);
    buffer_clear(&output->payload);
    if (status == STATUS_OK)
        output->size_bytes += chunk_bytes;
    else
        output->error = error;
}

static void *write_in_background(void *context) {
    struct output *output = context;
    (void)pthread_mutex_lock(&output->lock);
    for (;;) {
        if (output->is_busy) {
            write_unlocked(output);
            output->is_busy = false;
            (void)pthread_cond_broadcast(&output->changed);
        } else if (output->is_closing) {
            break;
        } else {
            (void)pthread_cond_wait(&output->changed, &output->lock);
        }
    }
    (void)pthread_mutex_unlock(&output->lock);
    return NULL;
}

/* The thread takes no signals: they are for the thread that waits for them. */
static bool start_thread(struct output *output) {
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    output->in_background = pthread_create(&output->thread, NULL, write_in_background, output) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return output->in_background;
}

static enum status write_file_header(struct output *output, struct error *error) {
    uint8_t header[CAPTURE_FILE_HEADER_BYTES] = {0};
    uint16_t version[] = {CAPTURE_MAJOR, CAPTURE_MINOR};
    memcpy(header, CAPTURE_FILE_MAGIC, CAPTURE_FILE_MAGIC_BYTES);
    memcpy(header + CAPTURE_FILE_MAGIC_BYTES, version, sizeof version);
    TRY(write_bytes(output, header, sizeof header, error));
    output->size_bytes = sizeof header;
    return STATUS_OK;
}

enum status output_open(int descriptor, int compression_level, bool in_background, struct output **output,
                        struct error *error) {
    struct output *made = calloc(1, sizeof *made);
    if (made == NULL) {
        (void)close(descriptor);
        return error_set(error, STATUS_FAILED, "cannot write the capture: out of memory");
    }
    made->descriptor = descriptor;
    made->compression_level = compression_level;
    made->owner = getpid();
    buffer_init(&made->payload, CAPTURE_CHUNK_MAX_BYTES);
    buffer_init(&made->stored, CAPTURE_CHUNK_HEADER_BYTES + ZSTD_COMPRESSBOUND((size_t)CAPTURE_CHUNK_MAX_BYTES));
    (void)pthread_mutex_init(&made->lock, NULL);
    (void)pthread_cond_init(&made->changed, NULL);
    made->compressor = ZSTD_createCCtx();
    enum status status = STATUS_OK;
    if (made->compressor == NULL)
        status = error_set(error, STATUS_FAILED, "cannot write the capture: out of memory");
    if (status == STATUS_OK)
        status = write_file_header(made, error);
    if (status == STATUS_OK && in_background && !start_thread(made))
        status = error_set(error, STATUS_FAILED, "cannot write the capture: no thread for it");
    if (status == STATUS_OK)
        *output = made;
    else
        output_close(made);
    return status;
}

static void await_idle(struct output *output) {
    while (output->is_busy)
        (void)pthread_cond_wait(&output->changed, &output->lock);
}

enum status output_write(struct output *output, struct buffer *payload, uint32_t epoch) {
    (void)pthread_mutex_lock(&output->lock);
    await_idle(output);
    if (output->error.status == STATUS_OK) {
        struct buffer empty = output->payload;
        output->payload = *payload;
        output->epoch = epoch;
        *payload = empty;
        if (output->in_background)
            output->is_busy = true;
        else
            write_unlocked(output);
        (void)pthread_cond_broadcast(&output->changed);
    }
    enum status status = output->error.status;
    (void)pthread_mutex_unlock(&output->lock);
    return status;
}

enum status output_wait(struct output *output) {
    (void)pthread_mutex_lock(&output->lock);
    await_idle(output);
    enum status status = output->error.status;
    (void)pthread_mutex_unlock(&output->lock);
    return status;
}

const char *output_complaint(const struct output *output) {
    return output->error.text;
}

uint64_t output_size_bytes(struct output *output) {
    (void)pthread_mutex_lock(&output->lock);
    uint64_t size_bytes = output->size_bytes;
    (void)pthread_mutex_unlock(&output->lock);
    return size_bytes;
}

static void stop_thread(struct output *output) {
    (void)pthread_mutex_lock(&output->lock);
    output->is_closing = true;
    (void)pthread_cond_broadcast(&output->changed);
    (void)pthread_mutex_unlock(&output->lock);
    (void)pthread_join(output->thread, NULL);
}

void output_close(struct output *output) {
    if (output == NULL)
        return;
    if (output->owner == getpid()) {
        if (output->in_background)
            stop_thread(output);
        (void)pthread_mutex_destroy(&output->lock);
        (void)pthread_cond_destroy(&output->changed);
    }
    (void)close(output->descriptor);
    (void)ZSTD_freeCCtx(output->compressor);
    buffer_release(&output->stored);
    buffer_release(&output->payload);
    free(output);
}
