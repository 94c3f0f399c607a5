/* What the files of the reader share. */
#ifndef STROBE_CAPTURE_READER_STATE_H
#define STROBE_CAPTURE_READER_STATE_H

#include "base/buffer.h"
#include "base/map.h"
#include "capture/format.h"
#include "capture/reader.h"

/* The file's ids of one kind in this epoch, as runs of neighbours: a lost chunk leaves a gap. What callbacks are told
 * are the dense ids. */
struct id_run {
    uint32_t first;
    uint32_t count;
    uint32_t first_dense;
};

struct id_table {
    struct id_run *runs; /* ascending */
    size_t run_count;
    size_t run_capacity;
    uint32_t next;       /* the file's next id */
    uint32_t next_dense; /* the next one told */
};

struct reader_thread {
    uint32_t id;
    bool told; /* its record was read */
    /* Valid in the chunk of this number only. */
    uint64_t chunk;
    uint32_t stack;
    uint32_t next_thread;
    uint8_t state;
    uint64_t tick;
};

struct reader {
    const struct capture_visitor *visitor;
    struct capture_damage damage;
    enum status stopped; /* what a callback returned that was not STATUS_OK */
    struct id_table strings, frames, stacks;
    struct map processes;    /* those told: number -> 1 */
    struct map thread_slots; /* id -> index in threads */
    struct reader_thread *threads;
    size_t thread_count;
    size_t thread_capacity;

    uint64_t chunk; /* counts up from 1 */
    bool has_base;
    uint64_t tick_ns;
    uint64_t tick;
    uint32_t previous_thread;
};

/* A piece of a record or of a chunk, read from its front. */
struct cursor {
    const uint8_t *at;
    const uint8_t *end;
};

/* Tells what a chunk's payload holds. Broken records are counted in damage; fails only when a callback does, or
 * for want of memory. */
enum status reader_tell_records(struct reader *reader, const uint8_t *payload, size_t size_bytes) MUST_USE;
/* One whose first byte is `fields`, the rest at the cursor. STATUS_DAMAGED: the chunk makes no sense from here on. */
enum status reader_tell_sample(struct reader *reader, uint8_t fields, struct cursor *cursor) MUST_USE;
enum status reader_tell_event(struct reader *reader, struct cursor *cursor) MUST_USE;
enum status reader_tell_change(struct reader *reader, struct cursor *cursor) MUST_USE;
enum status reader_tell_footprint(struct reader *reader, struct cursor *cursor) MUST_USE;
/* The number of a process. STATUS_NOT_FOUND when it was not told. */
enum status reader_take_process(const struct reader *reader, struct cursor *cursor, uint32_t *process) MUST_USE;

/* STATUS_DAMAGED at the end or when it is longer than a 64-bit number. */
enum status cursor_take(struct cursor *cursor, uint64_t *value) MUST_USE;

/* NULL when nothing is known of it. */
struct reader_thread *reader_find_thread(const struct reader *reader, uint32_t id);
/* Notes what a callback returned, and returns it. */
enum status reader_obey(struct reader *reader, enum status returned) MUST_USE;

/* Makes a thread known if it is not. STATUS_DAMAGED when there are more than any capture has. */
enum status reader_thread_of(struct reader *reader, uint32_t id, struct reader_thread **thread) MUST_USE;

void id_table_clear(struct id_table *table);
void id_table_release(struct id_table *table);
/* The next definition has the file's id `next`, which must not have been given before. */
enum status id_table_expect(struct id_table *table, uint64_t next) MUST_USE;
/* Gives the next id to something that can be told (*dense is its dense id), or to something that cannot. */
enum status id_table_add(struct id_table *table, uint32_t *dense) MUST_USE;
void id_table_skip(struct id_table *table);
/* The dense id of a file's id; 0 for 0. False when it was lost. */
bool id_table_find(const struct id_table *table, uint64_t id, uint32_t *dense);

#endif
