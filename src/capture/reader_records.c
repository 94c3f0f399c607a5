/* The records of a chunk, but for the samples. */
#include "capture/reader_state.h"

#include "base/array.h"

#include <stdlib.h>
#include <string.h>

/* Of threads that have not ended; more is no capture of this world. */
enum { MAX_THREADS = 1 << 20, MAX_PROCESSES = 1 << 20 };

enum status cursor_take(struct cursor *cursor, uint64_t *value) {
    *value = 0;
    for (unsigned shift = 0; shift < 64 && cursor->at < cursor->end; shift += 7) {
        uint8_t byte = *cursor->at++;
        if (shift == 63 && byte > 1)
            return STATUS_DAMAGED;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return STATUS_OK;
    }
    return STATUS_DAMAGED;
}

enum status reader_obey(struct reader *reader, enum status returned) {
    reader->stopped = returned;
    return returned;
}

static enum status take_u32(struct cursor *cursor, uint32_t *value) {
    uint64_t wide = 0;
    TRY(cursor_take(cursor, &wide));
    *value = (uint32_t)wide;
    return wide <= UINT32_MAX ? STATUS_OK : STATUS_DAMAGED;
}

static enum status take_text(struct cursor *cursor, struct capture_text *text) {
    uint64_t size_bytes = 0;
    TRY(cursor_take(cursor, &size_bytes));
    if (size_bytes > (uint64_t)(cursor->end - cursor->at) || size_bytes > CAPTURE_TEXT_MAX_BYTES)
        return STATUS_DAMAGED;
    *text = (struct capture_text){.bytes = (const char *)cursor->at, .size_bytes = (size_t)size_bytes};
    cursor->at += size_bytes;
    return STATUS_OK;
}

/* 0 is unknown, else one more than the number. */
static enum status take_position(struct cursor *cursor, int32_t *position) {
    uint64_t value = 0;
    TRY(cursor_take(cursor, &value));
    if (value > (uint64_t)INT32_MAX + 1)
        return STATUS_DAMAGED;
    *position = (int32_t)((int64_t)value - 1);
    return STATUS_OK;
}

static enum status tell_base(struct reader *reader, struct cursor *cursor) {
    uint64_t next_string = 0;
    uint64_t next_frame = 0;
    uint64_t next_stack = 0;
    TRY(cursor_take(cursor, &next_string));
    TRY(cursor_take(cursor, &next_frame));
    TRY(cursor_take(cursor, &next_stack));
    TRY(cursor_take(cursor, &reader->tick_ns));
    TRY(cursor_take(cursor, &reader->tick));
    TRY(id_table_expect(&reader->strings, next_string));
    TRY(id_table_expect(&reader->frames, next_frame));
    TRY(id_table_expect(&reader->stacks, next_stack));
    if (reader->has_base || reader->tick_ns == 0)
        return STATUS_DAMAGED;
    reader->has_base = true;
    return STATUS_OK;
}

static enum status tell_fact(struct reader *reader, struct cursor *cursor) {
    struct capture_text key;
    struct capture_text value;
    TRY(take_text(cursor, &key));
    TRY(take_text(cursor, &value));
    return reader->visitor->fact != NULL
               ? reader_obey(reader, reader->visitor->fact(reader->visitor->context, key, value))
               : STATUS_OK;
}

static enum status tell_string(struct reader *reader, const struct cursor *cursor) {
    struct capture_text text = {.bytes = (const char *)cursor->at, .size_bytes = (size_t)(cursor->end - cursor->at)};
    uint32_t dense = 0;
    if (text.size_bytes > CAPTURE_TEXT_MAX_BYTES) {
        id_table_skip(&reader->strings);
        return STATUS_NOT_FOUND;
    }
    TRY(id_table_add(&reader->strings, &dense));
    return reader->visitor->string != NULL
               ? reader_obey(reader, reader->visitor->string(reader->visitor->context, dense, text))
               : STATUS_OK;
}

static enum status take_string_id(const struct reader *reader, struct cursor *cursor, uint32_t *dense) {
    uint64_t id = 0;
    TRY(cursor_take(cursor, &id));
    return id_table_find(&reader->strings, id, dense) ? STATUS_OK : STATUS_NOT_FOUND;
}

static enum status take_frame(const struct reader *reader, struct cursor *cursor, struct capture_frame *frame) {
    uint64_t kind = 0;
    TRY(cursor_take(cursor, &kind));
    /* A later version's kind is still a frame with a name. */
    frame->kind = kind < CAPTURE_FRAME_KINDS ? (enum capture_frame_kind)kind : CAPTURE_FRAME_NATIVE;
    TRY(take_string_id(reader, cursor, &frame->function));
    TRY(take_string_id(reader, cursor, &frame->qualname));
    TRY(take_string_id(reader, cursor, &frame->file));
    TRY(take_position(cursor, &frame->line));
    TRY(take_position(cursor, &frame->end_line));
    TRY(take_position(cursor, &frame->column));
    TRY(take_position(cursor, &frame->end_column));
    return take_position(cursor, &frame->first_line);
}

static enum status tell_frame(struct reader *reader, struct cursor *cursor) {
    struct capture_frame frame = {0};
    uint32_t dense = 0;
    enum status status = take_frame(reader, cursor, &frame);
    if (status != STATUS_OK) {
        id_table_skip(&reader->frames);
        return status;
    }
    TRY(id_table_add(&reader->frames, &dense));
    return reader->visitor->frame != NULL
               ? reader_obey(reader, reader->visitor->frame(reader->visitor->context, dense, &frame))
               : STATUS_OK;
}

static enum status take_stack(const struct reader *reader, struct cursor *cursor, uint32_t *parent, uint32_t *frame) {
    uint64_t back = 0;
    uint64_t frame_id = 0;
    TRY(cursor_take(cursor, &back));
    TRY(cursor_take(cursor, &frame_id));
    if (back >= reader->stacks.next || frame_id == 0)
        return STATUS_DAMAGED;
    bool is_known = id_table_find(&reader->stacks, back == 0 ? 0 : reader->stacks.next - back, parent);
    return id_table_find(&reader->frames, frame_id, frame) && is_known ? STATUS_OK : STATUS_NOT_FOUND;
}

static enum status tell_stack(struct reader *reader, struct cursor *cursor) {
    uint32_t parent = 0;
    uint32_t frame = 0;
    uint32_t dense = 0;
    enum status status = take_stack(reader, cursor, &parent, &frame);
    if (status != STATUS_OK) {
        id_table_skip(&reader->stacks);
        return status;
    }
    TRY(id_table_add(&reader->stacks, &dense));
    return reader->visitor->stack != NULL
               ? reader_obey(reader, reader->visitor->stack(reader->visitor->context, dense, parent, frame))
               : STATUS_OK;
}

/* *texts is the caller's to free. */
static enum status take_texts(struct cursor *cursor, struct capture_text **texts, size_t *count) {
    uint64_t wanted = 0;
    TRY(cursor_take(cursor, &wanted));
    /* Each takes a byte at least. */
    if (wanted > CAPTURE_LIST_MAX || wanted > (uint64_t)(cursor->end - cursor->at))
        return STATUS_DAMAGED;
    *texts = calloc((size_t)wanted + 1, sizeof **texts);
    if (*texts == NULL)
        return STATUS_FAILED;
    for (; *count < wanted; (*count)++)
        TRY(take_text(cursor, &(*texts)[*count]));
    return STATUS_OK;
}

static enum status take_process(struct cursor *cursor, struct capture_process *process) {
    uint32_t pid = 0;
    uint32_t parent_pid = 0;
    uint64_t flags = 0;
    uint64_t mode = 0;
    uint64_t origin = 0;
    TRY(take_u32(cursor, &process->process));
    TRY(take_u32(cursor, &pid));
    TRY(take_u32(cursor, &parent_pid));
    TRY(take_u32(cursor, &process->python_version));
    TRY(cursor_take(cursor, &flags));
    TRY(cursor_take(cursor, &mode));
    TRY(cursor_take(cursor, &origin));
    TRY(cursor_take(cursor, &process->rate_millihertz));
    TRY(cursor_take(cursor, &process->start_unix_ns));
    TRY(cursor_take(cursor, &process->start_ns));
    process->pid = (int32_t)pid;
    process->parent_pid = (int32_t)parent_pid;
    process->free_threaded = flags & 1;
    process->mode = (enum capture_mode)mode;
    process->origin = (enum capture_origin)origin;
    return mode <= CAPTURE_MODE_GIL && origin <= CAPTURE_ORIGIN_RUN ? STATUS_OK : STATUS_DAMAGED;
}

static enum status tell_process(struct reader *reader, struct cursor *cursor) {
    struct capture_process process = {0};
    struct capture_text *command = NULL;
    struct capture_text *libraries = NULL;
    enum status status = take_process(cursor, &process);
    if (status == STATUS_OK)
        status = take_texts(cursor, &command, &process.command_count);
    if (status == STATUS_OK)
        status = take_texts(cursor, &libraries, &process.library_count);
    if (status == STATUS_OK && reader->processes.count >= MAX_PROCESSES)
        status = STATUS_DAMAGED;
    if (status == STATUS_OK)
        status = map_set(&reader->processes, process.process, 1);
    process.command = command;
    process.libraries = libraries;
    if (status == STATUS_OK && reader->visitor->process != NULL)
        status = reader_obey(reader, reader->visitor->process(reader->visitor->context, &process));
    free(command);
    free(libraries);
    return status;
}

enum status reader_take_process(const struct reader *reader, struct cursor *cursor, uint32_t *process) {
    uint64_t one = 0;
    TRY(take_u32(cursor, process));
    return map_get(&reader->processes, *process, &one) ? STATUS_OK : STATUS_NOT_FOUND;
}

static enum status tell_process_end(struct reader *reader, struct cursor *cursor) {
    uint32_t process = 0;
    uint64_t time_ns = 0;
    uint64_t wait_status = 0;
    TRY(reader_take_process(reader, cursor, &process));
    TRY(cursor_take(cursor, &time_ns));
    TRY(cursor_take(cursor, &wait_status));
    return reader->visitor->process_end != NULL
               ? reader_obey(reader, reader->visitor->process_end(reader->visitor->context, process, time_ns,
                                                                  (int32_t)zigzag_decode(wait_status)))
               : STATUS_OK;
}

static enum status tell_counters(struct reader *reader, struct cursor *cursor) {
    struct capture_counters counters;
    uint32_t process = 0;
    TRY(reader_take_process(reader, cursor, &process));
    TRY(cursor_take(cursor, &counters.taken));
    TRY(cursor_take(cursor, &counters.missed));
    TRY(cursor_take(cursor, &counters.inconsistent));
    TRY(cursor_take(cursor, &counters.errors));
    return reader->visitor->counters != NULL
               ? reader_obey(reader, reader->visitor->counters(reader->visitor->context, process, &counters))
               : STATUS_OK;
}

struct reader_thread *reader_find_thread(const struct reader *reader, uint32_t id) {
    uint64_t slot = 0;
    return map_get(&reader->thread_slots, id, &slot) ? &reader->threads[slot] : NULL;
}

enum status reader_thread_of(struct reader *reader, uint32_t id, struct reader_thread **thread) {
    *thread = reader_find_thread(reader, id);
    if (*thread != NULL)
        return STATUS_OK;
    if (reader->thread_count == MAX_THREADS)
        return STATUS_DAMAGED;
    TRY(array_reserve((void **)&reader->threads, &reader->thread_capacity, reader->thread_count + 1, sizeof **thread));
    TRY(map_set(&reader->thread_slots, id, reader->thread_count));
    *thread = &reader->threads[reader->thread_count++];
    **thread = (struct reader_thread){.id = id};
    return STATUS_OK;
}

static enum status forget_thread(struct reader *reader, struct reader_thread *thread) {
    uint64_t slot = (uint64_t)(thread - reader->threads);
    (void)map_remove(&reader->thread_slots, thread->id);
    *thread = reader->threads[--reader->thread_count];
    return slot < reader->thread_count ? map_set(&reader->thread_slots, thread->id, slot) : STATUS_OK;
}

static enum status tell_thread(struct reader *reader, struct cursor *cursor) {
    struct capture_thread thread = {0};
    struct reader_thread *known = NULL;
    uint32_t id = 0;
    uint64_t interpreter = 0;
    TRY(take_u32(cursor, &id));
    TRY(reader_take_process(reader, cursor, &thread.process));
    TRY(cursor_take(cursor, &thread.native_id));
    TRY(cursor_take(cursor, &thread.thread_id));
    TRY(cursor_take(cursor, &interpreter));
    TRY(take_text(cursor, &thread.name));
    if (id == 0)
        return STATUS_DAMAGED;
    TRY(reader_thread_of(reader, id, &known));
    known->told = true;
    thread.interpreter = (int64_t)(interpreter - 1);
    return reader->visitor->thread != NULL
               ? reader_obey(reader, reader->visitor->thread(reader->visitor->context, id, &thread))
               : STATUS_OK;
}

static enum status tell_thread_number(struct reader *reader, struct cursor *cursor,
                                      enum status (*tell)(void *context, uint32_t id, uint64_t number)) {
    uint32_t id = 0;
    uint64_t number = 0;
    TRY(take_u32(cursor, &id));
    TRY(cursor_take(cursor, &number));
    const struct reader_thread *thread = reader_find_thread(reader, id);
    if (thread == NULL || !thread->told)
        return STATUS_NOT_FOUND;
    return tell != NULL ? reader_obey(reader, tell(reader->visitor->context, id, number)) : STATUS_OK;
}

static enum status tell_thread_end(struct reader *reader, struct cursor *cursor) {
    struct cursor ahead = *cursor;
    uint32_t id = 0;
    TRY(take_u32(&ahead, &id));
    TRY(tell_thread_number(reader, cursor, reader->visitor->thread_end));
    return forget_thread(reader, reader_find_thread(reader, id));
}

static enum status tell_record(struct reader *reader, uint8_t type, struct cursor *body) {
    switch (type) {
    case CAPTURE_RECORD_BASE:
        return tell_base(reader, body);
    case CAPTURE_RECORD_FACT:
        return tell_fact(reader, body);
    case CAPTURE_RECORD_STRING:
        return tell_string(reader, body);
    case CAPTURE_RECORD_FRAME:
        return tell_frame(reader, body);
    case CAPTURE_RECORD_STACK:
        return tell_stack(reader, body);
    case CAPTURE_RECORD_PROCESS:
        return tell_process(reader, body);
    case CAPTURE_RECORD_PROCESS_END:
        return tell_process_end(reader, body);
    case CAPTURE_RECORD_COUNTERS:
        return tell_counters(reader, body);
    case CAPTURE_RECORD_THREAD:
        return tell_thread(reader, body);
    case CAPTURE_RECORD_THREAD_CPU:
        return tell_thread_number(reader, body, reader->visitor->thread_cpu);
    case CAPTURE_RECORD_THREAD_END:
        return tell_thread_end(reader, body);
    case CAPTURE_RECORD_EVENT:
        return reader_tell_event(reader, body);
    case CAPTURE_RECORD_CHANGE:
        return reader_tell_change(reader, body);
    case CAPTURE_RECORD_FOOTPRINT:
        return reader_tell_footprint(reader, body);
    case CAPTURE_RECORD_END:
        reader->damage.ended = true;
        return STATUS_OK;
    default: /* a later version's */
        return STATUS_OK;
    }
}

/* One record or sample from the front of the payload. */
static enum status tell_next(struct reader *reader, struct cursor *cursor) {
    uint8_t type = *cursor->at++;
    uint64_t size_bytes = 0;
    if (!reader->has_base && type != CAPTURE_RECORD_BASE)
        return STATUS_DAMAGED;
    if (type >= CAPTURE_RECORD_SAMPLE)
        return reader_tell_sample(reader, type, cursor);
    TRY(cursor_take(cursor, &size_bytes));
    if (size_bytes > (uint64_t)(cursor->end - cursor->at))
        return STATUS_DAMAGED;
    struct cursor body = {.at = cursor->at, .end = cursor->at + size_bytes};
    cursor->at = body.end;
    return tell_record(reader, type, &body);
}

enum status reader_tell_records(struct reader *reader, const uint8_t *payload, size_t size_bytes) {
    struct cursor cursor = {.at = payload, .end = payload + size_bytes};
    reader->chunk++;
    reader->has_base = false;
    reader->previous_thread = 0;
    while (cursor.at < cursor.end) {
        enum status status = tell_next(reader, &cursor);
        if (status == STATUS_OK)
            continue;
        if (reader->stopped != STATUS_OK || (status != STATUS_NOT_FOUND && status != STATUS_DAMAGED))
            return status;
        reader->damage.lost_records++;
        /* NOT_FOUND speaks of what was lost, and costs itself. What cannot be is no writer's: nothing behind it counts.
         */
        if (status == STATUS_DAMAGED) {
            reader->damage.lost_bytes += (uint64_t)(cursor.end - cursor.at);
            break;
        }
    }
    return STATUS_OK;
}
