/* What the files of the writer share. */
#ifndef STROBE_CAPTURE_WRITER_STATE_H
#define STROBE_CAPTURE_WRITER_STATE_H

#include "base/buffer.h"
#include "base/digest.h"
#include "base/map.h"
#include "capture/chunk_file.h"
#include "capture/format.h"
#include "capture/writer.h"

/* A record that is written again at the start of each epoch, so that an epoch can be read without the one before. */
struct kept_record {
    enum capture_record type;
    uint8_t *body;
    size_t size_bytes;
};

struct writer_process {
    uint32_t process;
    struct kept_record record;
};

struct writer_thread {
    uint32_t id;
    uint32_t process;
    struct kept_record record;
    /* What the reader knows of it, valid in the chunk of this number only. */
    bool in_chunk;
    uint64_t chunk;
    uint32_t stack;
    uint8_t state;
    uint64_t tick;
    uint32_t next_thread; /* who was sampled after it the last time */
    int64_t carry_ns;     /* weight that rounding to ticks has not written yet */
};

struct capture_writer {
    struct chunk_file *file;
    struct capture_writer_options options;
    struct error error; /* final once set */

    uint32_t epoch;
    uint64_t chunk_count; /* before the one being filled */
    struct buffer chunk;
    bool chunk_open;           /* the chunk has begun, with its base record */
    uint64_t chunk_started_ns; /* by the samples' time; 0: not known yet */

    struct digest_map strings, frames, stacks;
    uint32_t next_string, next_frame, next_stack;

    struct kept_record *facts;
    size_t fact_count;
    struct writer_process *processes;
    size_t process_count;
    struct writer_thread *threads; /* living ones */
    size_t thread_count;
    size_t thread_capacity;
    struct map thread_slots; /* id -> index in threads */
    uint32_t next_thread;

    /* Of the chunk: what the next sample's time and thread are told against. */
    uint64_t tick;
    uint32_t previous_thread; /* 0: none yet */
    uint64_t last_ns;         /* the latest time seen at all */
    uint64_t sample_count;
};

/* Fails the writer for good; returns its status. */
enum status writer_fail(struct capture_writer *writer, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Makes sure that a chunk is open and has room for `more_bytes`. */
enum status writer_prepare(struct capture_writer *writer, size_t more_bytes) MUST_USE;
/* Writes the chunk being filled, if any. */
enum status writer_write_chunk(struct capture_writer *writer) MUST_USE;
/* Appends one record. */
enum status writer_append_record(struct capture_writer *writer, enum capture_record type, const void *body,
                                 size_t size_bytes) MUST_USE;
/* After a sample: writes the chunk when it is large or old enough, and starts an epoch when the tables are full. */
enum status writer_settle(struct capture_writer *writer, uint64_t now_ns) MUST_USE;
/* Writes the kept records, at the start of an epoch. */
enum status writer_repeat_kept(struct capture_writer *writer) MUST_USE;
bool writer_has_process(struct capture_writer *writer, uint32_t process);
struct writer_thread *writer_find_thread(const struct capture_writer *writer, uint32_t id);
void writer_release_kept(struct capture_writer *writer);

enum status body_put_varint(struct buffer *body, uint64_t value) MUST_USE;
/* Its length and its bytes; cut at CAPTURE_TEXT_MAX_BYTES. */
enum status body_put_text(struct buffer *body, struct capture_text text) MUST_USE;

#endif
