/* What is interned, and the processes and threads. */
#include "capture/writer.h"
#include "capture/writer_state.h"

#include "base/array.h"

#include <stdlib.h>
#include <string.h>

static enum status no_memory(struct capture_writer *writer) {
    return writer_fail(writer, STATUS_FAILED, "cannot write the capture: out of memory");
}

enum status body_put_varint(struct buffer *body, uint64_t value) {
    uint8_t bytes[VARINT_MAX_BYTES];
    return buffer_append(body, bytes, varint_put(bytes, value));
}

enum status body_put_text(struct buffer *body, struct capture_text text) {
    size_t size_bytes = text.size_bytes < CAPTURE_TEXT_MAX_BYTES ? text.size_bytes : CAPTURE_TEXT_MAX_BYTES;
    TRY(body_put_varint(body, size_bytes));
    return buffer_append(body, text.bytes, size_bytes);
}

/* As many as fit, so that a command of megabytes costs its end and not the record. */
static enum status put_texts(struct buffer *body, const struct capture_text *texts, size_t count) {
    size_t room_bytes = (CAPTURE_RECORD_MAX_BYTES - body->size_bytes) / 2;
    size_t fitting = 0;
    for (size_t used_bytes = 0; fitting < count && fitting < CAPTURE_LIST_MAX; fitting++) {
        used_bytes += VARINT_MAX_BYTES + texts[fitting].size_bytes;
        if (used_bytes > room_bytes)
            break;
    }
    TRY(body_put_varint(body, fitting));
    for (size_t i = 0; i < fitting; i++)
        TRY(body_put_text(body, texts[i]));
    return STATUS_OK;
}

enum status capture_intern_string(struct capture_writer *writer, const char *text, size_t size_bytes, uint32_t *id) {
    *id = 0;
    if (size_bytes == 0)
        return STATUS_OK;
    if (size_bytes > CAPTURE_TEXT_MAX_BYTES)
        size_bytes = CAPTURE_TEXT_MAX_BYTES;
    struct digest key = digest_of(text, size_bytes);
    if ((*id = digest_map_get(&writer->strings, key)) != 0)
        return STATUS_OK;
    if (writer->next_string / 2 >= writer->options.max_strings)
        return STATUS_LIMIT;
    TRY(writer_append_record(writer, CAPTURE_RECORD_STRING, text, size_bytes));
    if (digest_map_set(&writer->strings, key, writer->next_string) != STATUS_OK)
        return no_memory(writer);
    *id = writer->next_string++;
    return STATUS_OK;
}

/* -1 and below, 'unknown', is 0. */
static uint64_t position(int32_t value) {
    return value < 0 ? 0 : (uint64_t)value + 1;
}

enum status capture_intern_frame(struct capture_writer *writer, const struct capture_frame *frame, uint32_t *id) {
    const uint64_t fields[] = {frame->kind,
                               frame->function,
                               frame->qualname,
                               frame->file,
                               position(frame->line),
                               position(frame->end_line),
                               position(frame->column),
                               position(frame->end_column),
                               position(frame->first_line)};
    struct digest key = digest_of(fields, sizeof fields);
    if ((*id = digest_map_get(&writer->frames, key)) != 0)
        return STATUS_OK;
    if (frame->function >= writer->next_string || frame->qualname >= writer->next_string ||
        frame->file >= writer->next_string)
        return STATUS_NOT_FOUND;
    if (writer->next_frame / 2 >= writer->options.max_frames)
        return STATUS_LIMIT;
    uint8_t body[sizeof fields / sizeof fields[0] * VARINT_MAX_BYTES];
    size_t size_bytes = 0;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        size_bytes += varint_put(body + size_bytes, fields[i]);
    TRY(writer_append_record(writer, CAPTURE_RECORD_FRAME, body, size_bytes));
    if (digest_map_set(&writer->frames, key, writer->next_frame) != STATUS_OK)
        return no_memory(writer);
    *id = writer->next_frame++;
    return STATUS_OK;
}

enum status capture_intern_stack(struct capture_writer *writer, uint32_t parent, uint32_t frame, uint32_t *id) {
    struct digest key = digest_of_pair(parent, frame);
    if ((*id = digest_map_get(&writer->stacks, key)) != 0)
        return STATUS_OK;
    if (parent >= writer->next_stack || frame == 0 || frame >= writer->next_frame)
        return STATUS_NOT_FOUND;
    if (writer->next_stack / 2 >= writer->options.max_stacks)
        return STATUS_LIMIT;
    /* How far back the parent is: 1 all along a deep stack that is new, which compresses to nothing. */
    uint8_t body[2 * VARINT_MAX_BYTES];
    size_t size_bytes = varint_put(body, parent == 0 ? 0 : writer->next_stack - parent);
    size_bytes += varint_put(body + size_bytes, frame);
    TRY(writer_append_record(writer, CAPTURE_RECORD_STACK, body, size_bytes));
    if (digest_map_set(&writer->stacks, key, writer->next_stack) != STATUS_OK)
        return no_memory(writer);
    *id = writer->next_stack++;
    return STATUS_OK;
}

/* Takes over the body's bytes, so that they can be written again, and writes them. */
static enum status keep_and_write(struct capture_writer *writer, enum capture_record type, struct buffer *body,
                                  struct kept_record *kept) {
    free(kept->body);
    *kept = (struct kept_record){.type = type, .body = (uint8_t *)body->data, .size_bytes = body->size_bytes};
    *body = (struct buffer){0};
    return writer_append_record(writer, type, kept->body, kept->size_bytes);
}

/* Room for one more at the end of an array that grows one at a time: there are few of them. */
static void *grow_by_one(void *array, size_t count, size_t item_bytes) {
    return realloc(array, (count + 1) * item_bytes);
}

enum status capture_write_fact(struct capture_writer *writer, const char *key, const char *value) {
    struct buffer body;
    buffer_init(&body, CAPTURE_RECORD_MAX_BYTES);
    enum status status = body_put_text(&body, (struct capture_text){key, strlen(key)});
    if (status == STATUS_OK)
        status = body_put_text(&body, (struct capture_text){value, strlen(value)});
    struct kept_record *grown =
        status == STATUS_OK ? grow_by_one(writer->facts, writer->fact_count, sizeof *grown) : NULL;
    if (grown == NULL) {
        buffer_release(&body);
        return no_memory(writer);
    }
    writer->facts = grown;
    writer->facts[writer->fact_count] = (struct kept_record){0};
    return keep_and_write(writer, CAPTURE_RECORD_FACT, &body, &writer->facts[writer->fact_count++]);
}

static enum status encode_process(const struct capture_process *process, struct buffer *body) {
    const uint64_t fields[] = {process->process,        (uint32_t)process->pid,   (uint32_t)process->parent_pid,
                               process->python_version, process->free_threaded,   process->mode,
                               process->origin,         process->rate_millihertz, process->start_unix_ns,
                               process->start_ns};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        TRY(body_put_varint(body, fields[i]));
    TRY(put_texts(body, process->command, process->command_count));
    return put_texts(body, process->libraries, process->library_count);
}

static struct writer_process *find_process(struct capture_writer *writer, uint32_t number) {
    for (size_t i = 0; i < writer->process_count; i++)
        if (writer->processes[i].process == number)
            return &writer->processes[i];
    return NULL;
}

bool writer_has_process(struct capture_writer *writer, uint32_t process) {
    return find_process(writer, process) != NULL;
}

enum status capture_add_process(struct capture_writer *writer, const struct capture_process *process) {
    struct buffer body;
    buffer_init(&body, CAPTURE_RECORD_MAX_BYTES);
    struct writer_process *known = find_process(writer, process->process);
    if (known == NULL) {
        struct writer_process *grown = grow_by_one(writer->processes, writer->process_count, sizeof *grown);
        if (grown == NULL)
            return no_memory(writer);
        writer->processes = grown;
        known = &grown[writer->process_count++];
        *known = (struct writer_process){.process = process->process};
    }
    if (process->start_ns > writer->last_ns)
        writer->last_ns = process->start_ns;
    if (encode_process(process, &body) == STATUS_OK)
        return keep_and_write(writer, CAPTURE_RECORD_PROCESS, &body, &known->record);
    buffer_release(&body);
    return no_memory(writer);
}

struct writer_thread *writer_find_thread(const struct capture_writer *writer, uint32_t id) {
    uint64_t slot = 0;
    return map_get(&writer->thread_slots, id, &slot) ? &writer->threads[slot] : NULL;
}

static enum status write_thread(struct capture_writer *writer, struct writer_thread *known,
                                const struct capture_thread *thread) {
    const uint64_t fields[] = {known->id, thread->process, thread->native_id, thread->thread_id,
                               (uint64_t)(thread->interpreter + 1)};
    struct buffer body;
    buffer_init(&body, CAPTURE_RECORD_MAX_BYTES);
    enum status status = STATUS_OK;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0] && status == STATUS_OK; i++)
        status = body_put_varint(&body, fields[i]);
    if (status == STATUS_OK)
        status = body_put_text(&body, thread->name);
    if (status == STATUS_OK)
        return keep_and_write(writer, CAPTURE_RECORD_THREAD, &body, &known->record);
    buffer_release(&body);
    return no_memory(writer);
}

enum status capture_add_thread(struct capture_writer *writer, const struct capture_thread *thread, uint32_t *id) {
    *id = 0;
    if (find_process(writer, thread->process) == NULL)
        return STATUS_NOT_FOUND;
    if (array_reserve((void **)&writer->threads, &writer->thread_capacity, writer->thread_count + 1,
                      sizeof writer->threads[0]) != STATUS_OK ||
        map_set(&writer->thread_slots, writer->next_thread, writer->thread_count) != STATUS_OK)
        return no_memory(writer);
    struct writer_thread *added = &writer->threads[writer->thread_count++];
    *added = (struct writer_thread){.id = writer->next_thread++, .process = thread->process};
    *id = added->id;
    return write_thread(writer, added, thread);
}

enum status capture_update_thread(struct capture_writer *writer, uint32_t id, const struct capture_thread *thread) {
    struct writer_thread *known = writer_find_thread(writer, id);
    return known != NULL ? write_thread(writer, known, thread) : STATUS_NOT_FOUND;
}

static enum status write_numbers(struct capture_writer *writer, enum capture_record type, const uint64_t *numbers,
                                 size_t count) {
    uint8_t body[8 * VARINT_MAX_BYTES];
    size_t size_bytes = 0;
    for (size_t i = 0; i < count; i++)
        size_bytes += varint_put(body + size_bytes, numbers[i]);
    return writer_append_record(writer, type, body, size_bytes);
}

enum status capture_write_thread_cpu(struct capture_writer *writer, uint32_t id, uint64_t cpu_ns) {
    if (writer_find_thread(writer, id) == NULL)
        return STATUS_NOT_FOUND;
    return write_numbers(writer, CAPTURE_RECORD_THREAD_CPU, (const uint64_t[]){id, cpu_ns}, 2);
}

enum status capture_write_counters(struct capture_writer *writer, uint32_t process,
                                   const struct capture_counters *counters) {
    if (find_process(writer, process) == NULL)
        return STATUS_NOT_FOUND;
    const uint64_t numbers[] = {process, counters->taken, counters->missed, counters->inconsistent, counters->errors};
    return write_numbers(writer, CAPTURE_RECORD_COUNTERS, numbers, 5);
}

static enum status forget_thread(struct capture_writer *writer, struct writer_thread *thread) {
    uint64_t slot = (uint64_t)(thread - writer->threads);
    (void)map_remove(&writer->thread_slots, thread->id);
    free(thread->record.body);
    *thread = writer->threads[--writer->thread_count];
    return slot < writer->thread_count ? map_set(&writer->thread_slots, thread->id, slot) : STATUS_OK;
}

enum status capture_end_thread(struct capture_writer *writer, uint32_t id, uint64_t time_ns) {
    struct writer_thread *known = writer_find_thread(writer, id);
    if (known == NULL)
        return STATUS_NOT_FOUND;
    TRY(write_numbers(writer, CAPTURE_RECORD_THREAD_END, (const uint64_t[]){id, time_ns}, 2));
    return forget_thread(writer, known) == STATUS_OK ? STATUS_OK : no_memory(writer);
}

enum status capture_end_process(struct capture_writer *writer, uint32_t process, uint64_t time_ns,
                                int32_t wait_status) {
    struct writer_process *known = find_process(writer, process);
    if (known == NULL)
        return STATUS_NOT_FOUND;
    for (size_t i = writer->thread_count; i-- > 0;)
        if (writer->threads[i].process == process)
            TRY(capture_end_thread(writer, writer->threads[i].id, time_ns));
    const uint64_t numbers[] = {process, time_ns, zigzag_encode(wait_status)};
    TRY(write_numbers(writer, CAPTURE_RECORD_PROCESS_END, numbers, 3));
    free(known->record.body);
    *known = writer->processes[--writer->process_count];
    return STATUS_OK;
}

enum status writer_repeat_kept(struct capture_writer *writer) {
    for (size_t i = 0; i < writer->fact_count; i++)
        TRY(writer_append_record(writer, writer->facts[i].type, writer->facts[i].body, writer->facts[i].size_bytes));
    for (size_t i = 0; i < writer->process_count; i++) {
        const struct kept_record *record = &writer->processes[i].record;
        TRY(writer_append_record(writer, record->type, record->body, record->size_bytes));
    }
    for (size_t i = 0; i < writer->thread_count; i++) {
        const struct kept_record *record = &writer->threads[i].record;
        TRY(writer_append_record(writer, record->type, record->body, record->size_bytes));
    }
    return STATUS_OK;
}

void writer_release_kept(struct capture_writer *writer) {
    for (size_t i = 0; i < writer->fact_count; i++)
        free(writer->facts[i].body);
    for (size_t i = 0; i < writer->process_count; i++)
        free(writer->processes[i].record.body);
    for (size_t i = 0; i < writer->thread_count; i++)
        free(writer->threads[i].record.body);
    free(writer->facts);
    free(writer->processes);
    free(writer->threads);
    map_release(&writer->thread_slots);
}
