#include "capture/chunk_file.h"

#include "capture/format.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

struct chunk_file {
    int descriptor;
    int compression_level;
    pid_t owner;   /* who opened it: a child of its has the memory, but not the thread */
    bool is_begun; /* what was in the file before is gone, and our header is there */
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
static enum status write_bytes(struct chunk_file *file, const void *bytes, size_t size_bytes, struct error *error) {
    for (size_t done_bytes = 0; done_bytes < size_bytes;) {
        ssize_t written = write(file->descriptor, (const char *)bytes + done_bytes, size_bytes - done_bytes);
        if (written > 0) {
            done_bytes += (size_t)written;
        } else if (written == 0 || errno != EINTR) {
            int reason = written == 0 ? ENOSPC : errno;
            /* When that fails too, a reader meets a chunk that is cut. */
            int is_cut = ftruncate(file->descriptor, (off_t)file->size_bytes);
            (void)is_cut;
            return error_set(error, STATUS_FAILED, "cannot write the capture: %s", strerror(reason));
        }
    }
    return STATUS_OK;
}

/* Compresses the payload behind the place of its header. */
static enum status store_payload(struct chunk_file *file, uint8_t *flags, size_t *stored_bytes) {
    size_t raw_bytes = file->payload.size_bytes;
    size_t most_bytes = ZSTD_compressBound(raw_bytes);
    void *room = NULL;
    buffer_clear(&file->stored);
    TRY(buffer_extend(&file->stored, CAPTURE_CHUNK_HEADER_BYTES + most_bytes, &room));
    uint8_t *stored = (uint8_t *)room + CAPTURE_CHUNK_HEADER_BYTES;
    *stored_bytes =
        ZSTD_compressCCtx(file->compressor, stored, most_bytes, file->payload.data, raw_bytes, file->compression_level);
    *flags = CAPTURE_CHUNK_ZSTD;
    /* What does not shrink is stored as it is, and so is everything when zstd has no memory. */
    if (ZSTD_isError(*stored_bytes) || *stored_bytes >= raw_bytes) {
        memcpy(stored, file->payload.data, raw_bytes);
        *stored_bytes = raw_bytes;
        *flags = 0;
    }
    return STATUS_OK;
}

static void fill_header(const struct chunk_file *file, uint8_t flags, size_t stored_bytes, uint8_t *bytes) {
    const uint32_t numbers[] = {file->sequence, (uint32_t)file->payload.size_bytes, (uint32_t)stored_bytes,
                                file->epoch};
    memset(bytes, 0, CAPTURE_CHUNK_HEADER_BYTES);
    memcpy(bytes, CAPTURE_CHUNK_MAGIC, CAPTURE_CHUNK_MAGIC_BYTES);
    bytes[4] = CAPTURE_CHUNK_RECORDS;
    bytes[5] = flags;
    memcpy(bytes + 8, numbers, sizeof numbers);
    uint64_t checksum = capture_checksum(bytes, stored_bytes);
    memcpy(bytes + CAPTURE_CHECKSUM_OFFSET, &checksum, sizeof checksum);
}

static enum status write_chunk(struct chunk_file *file, uint64_t *chunk_bytes, struct error *error) {
    uint8_t flags = 0;
    size_t stored_bytes = 0;
    if (store_payload(file, &flags, &stored_bytes) != STATUS_OK)
        return error_set(error, STATUS_FAILED, "cannot write the capture: out of memory");
    fill_header(file, flags, stored_bytes, (uint8_t *)file->stored.data);
    *chunk_bytes = CAPTURE_CHUNK_HEADER_BYTES + stored_bytes;
    file->sequence++;
    return write_bytes(file, file->stored.data, (size_t)*chunk_bytes, error);
}

/* Writes file->payload; the lock is held, but not meanwhile. */
static void write_unlocked(struct chunk_file *file) {
    struct error error = {0};
    uint64_t chunk_bytes = 0;
    (void)pthread_mutex_unlock(&file->lock);
    enum status status = write_chunk(file, &chunk_bytes, &error);
    (void)pthread_mutex_lock(&file->lock);
    buffer_clear(&file->payload);
    if (status == STATUS_OK)
        file->size_bytes += chunk_bytes;
    else
        file->error = error;
}

static void *write_in_background(void *context) {
    struct chunk_file *file = context;
    (void)pthread_mutex_lock(&file->lock);
    for (;;) {
        if (file->is_busy) {
            write_unlocked(file);
            file->is_busy = false;
            (void)pthread_cond_broadcast(&file->changed);
        } else if (file->is_closing) {
            break;
        } else {
            (void)pthread_cond_wait(&file->changed, &file->lock);
        }
    }
    (void)pthread_mutex_unlock(&file->lock);
    return NULL;
}

/* The thread takes no signals: they are for the thread that waits for them. */
static bool start_thread(struct chunk_file *file) {
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    file->in_background = pthread_create(&file->thread, NULL, write_in_background, file) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return file->in_background;
}

static bool has_content(int descriptor) {
    struct stat info;
    return fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0;
}

enum status chunk_file_begin(struct chunk_file *file, struct error *error) {
    uint8_t header[CAPTURE_FILE_HEADER_BYTES] = {0};
    if (file->is_begun)
        return STATUS_OK;
    if (has_content(file->descriptor) && ftruncate(file->descriptor, 0) != 0)
        return error_set(error, STATUS_FAILED, "cannot write the capture: %s", strerror(errno));
    uint16_t version[] = {CAPTURE_MAJOR, CAPTURE_MINOR};
    memcpy(header, CAPTURE_FILE_MAGIC, CAPTURE_FILE_MAGIC_BYTES);
    memcpy(header + CAPTURE_FILE_MAGIC_BYTES, version, sizeof version);
    TRY(write_bytes(file, header, sizeof header, error));
    file->size_bytes = sizeof header;
    file->is_begun = true;
    return STATUS_OK;
}

enum status chunk_file_open(int descriptor, int compression_level, bool in_background, struct chunk_file **file,
                            struct error *error) {
    struct chunk_file *made = calloc(1, sizeof *made);
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
    if (status == STATUS_OK && !has_content(descriptor))
        status = chunk_file_begin(made, error);
    if (status == STATUS_OK && in_background && !start_thread(made))
        status = error_set(error, STATUS_FAILED, "cannot write the capture: no thread for it");
    if (status == STATUS_OK)
        *file = made;
    else
        chunk_file_close(made);
    return status;
}

static void await_idle(struct chunk_file *file) {
    while (file->is_busy)
        (void)pthread_cond_wait(&file->changed, &file->lock);
}

enum status chunk_file_write(struct chunk_file *file, struct buffer *payload, uint32_t epoch) {
    (void)pthread_mutex_lock(&file->lock);
    await_idle(file);
    if (file->error.status == STATUS_OK) {
        struct buffer empty = file->payload;
        file->payload = *payload;
        file->epoch = epoch;
        *payload = empty;
        if (file->in_background)
            file->is_busy = true;
        else
            write_unlocked(file);
        (void)pthread_cond_broadcast(&file->changed);
    }
    enum status status = file->error.status;
    (void)pthread_mutex_unlock(&file->lock);
    return status;
}

enum status chunk_file_wait(struct chunk_file *file) {
    (void)pthread_mutex_lock(&file->lock);
    await_idle(file);
    enum status status = file->error.status;
    (void)pthread_mutex_unlock(&file->lock);
    return status;
}

const char *chunk_file_complaint(const struct chunk_file *file) {
    return file->error.text;
}

uint64_t chunk_file_size_bytes(struct chunk_file *file) {
    (void)pthread_mutex_lock(&file->lock);
    uint64_t size_bytes = file->size_bytes;
    (void)pthread_mutex_unlock(&file->lock);
    return size_bytes;
}

static void stop_thread(struct chunk_file *file) {
    (void)pthread_mutex_lock(&file->lock);
    file->is_closing = true;
    (void)pthread_cond_broadcast(&file->changed);
    (void)pthread_mutex_unlock(&file->lock);
    (void)pthread_join(file->thread, NULL);
}

void chunk_file_close(struct chunk_file *file) {
    if (file == NULL)
        return;
    if (file->owner == getpid()) {
        if (file->in_background)
            stop_thread(file);
        (void)pthread_mutex_destroy(&file->lock);
        (void)pthread_cond_destroy(&file->changed);
    }
    (void)close(file->descriptor);
    (void)ZSTD_freeCCtx(file->compressor);
    buffer_release(&file->stored);
    buffer_release(&file->payload);
    free(file);
}
