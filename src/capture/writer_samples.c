/* Samples, events and memory: a sample is told by its difference from what the reader expects. */
#include "capture/writer.h"
#include "capture/writer_state.h"

enum { SAMPLE_MAX_BYTES = 2 + 4 * VARINT_MAX_BYTES };

static size_t put_time(struct capture_writer *writer, uint64_t tick, uint8_t *to) {
    size_t size_bytes = varint_put(to, zigzag_encode((int64_t)(tick - writer->tick)));
    writer->tick = tick;
    return size_bytes;
}

/* Threads come in the same order in every look, so who came next the last time is who comes next. */
static uint8_t choose_thread(struct capture_writer *writer, uint32_t thread) {
    uint32_t previous_id = writer->previous_thread;
    writer->previous_thread = thread;
    if (thread == previous_id)
        return SAMPLE_THREAD_SAME;
    struct writer_thread *previous = previous_id != 0 ? writer_find_thread(writer, previous_id) : NULL;
    if (previous == NULL)
        return SAMPLE_THREAD_GIVEN;
    bool is_expected = previous->next_thread == thread;
    previous->next_thread = thread;
    return is_expected ? SAMPLE_THREAD_NEXT : SAMPLE_THREAD_GIVEN;
}

/* Rounds the weight to ticks and carries the rest over to the thread's next sample. *is_implied: it is the time since
 * the thread's last sample, near enough, and need not be written. */
static uint64_t weigh(const struct capture_writer *writer, struct writer_thread *thread, uint64_t tick,
                      uint64_t weight_ns, bool *is_implied) {
    int64_t tick_ns = (int64_t)writer->options.tick_ns;
    int64_t exact_ns = (weight_ns < INT64_MAX / 2 ? (int64_t)weight_ns : INT64_MAX / 2) + thread->carry_ns;
    uint64_t weight = exact_ns > 0 ? (uint64_t)(exact_ns / tick_ns) : 0;
    *is_implied = false;
    if (thread->in_chunk && tick >= thread->tick) {
        uint64_t since = tick - thread->tick;
        *is_implied = weight + 2 > since && since + 2 > weight;
        weight = *is_implied ? since : weight;
    }
    thread->carry_ns = exact_ns - (int64_t)(weight * writer->options.tick_ns);
    return weight;
}

static uint8_t state_of(const struct capture_sample *sample) {
    return (uint8_t)((sample->run & STATE_RUN_MASK) | (sample->gil & STATE_GIL_MASK) << STATE_GIL_SHIFT |
                     (sample->collecting ? STATE_COLLECTING : 0));
}

static size_t encode_sample(struct capture_writer *writer, struct writer_thread *thread,
                            const struct capture_sample *sample, uint8_t *bytes) {
    uint64_t tick = sample->time_ns / writer->options.tick_ns;
    uint8_t state = state_of(sample);
    bool is_implied = false;
    uint64_t weight = weigh(writer, thread, tick, sample->weight_ns, &is_implied);
    uint8_t how = choose_thread(writer, sample->thread);
    uint8_t fields = CAPTURE_RECORD_SAMPLE | how;
    size_t size_bytes = 1;
    if (tick != writer->tick) {
        fields |= SAMPLE_HAS_TIME;
        size_bytes += put_time(writer, tick, bytes + size_bytes);
    }
    if (how == SAMPLE_THREAD_GIVEN)
        size_bytes += varint_put(bytes + size_bytes, sample->thread);
    if (!thread->in_chunk || thread->stack != sample->stack) {
        fields |= SAMPLE_STACK_GIVEN;
        size_bytes += varint_put(bytes + size_bytes, sample->stack);
    }
    if (!thread->in_chunk || thread->state != state) {
        fields |= SAMPLE_HAS_STATE;
        bytes[size_bytes++] = state;
    }
    if (!is_implied) {
        fields |= SAMPLE_HAS_WEIGHT;
        size_bytes += varint_put(bytes + size_bytes, weight);
    }
    bytes[0] = fields;
    thread->in_chunk = true;
    thread->stack = sample->stack;
    thread->state = state;
    thread->tick = tick;
    return size_bytes;
}

enum status capture_write_sample(struct capture_writer *writer, const struct capture_sample *sample) {
    uint8_t bytes[SAMPLE_MAX_BYTES];
    TRY(writer_prepare(writer, sizeof bytes));
    struct writer_thread *thread = writer_find_thread(writer, sample->thread);
    if (thread == NULL || sample->stack >= writer->next_stack)
        return STATUS_NOT_FOUND;
    if (thread->chunk != writer->chunk_count) {
        thread->in_chunk = false;
        thread->next_thread = 0;
        thread->chunk = writer->chunk_count;
    }
    size_t size_bytes = encode_sample(writer, thread, sample, bytes);
    if (buffer_append(&writer->chunk, bytes, size_bytes) != STATUS_OK)
        return writer_fail(writer, STATUS_FAILED, "cannot write the capture: out of memory");
    writer->sample_count++;
    return writer_settle(writer, sample->time_ns);
}

enum status capture_write_event(struct capture_writer *writer, const struct capture_event *event) {
    uint8_t body[(4 + 2 * CAPTURE_EVENT_VALUES) * VARINT_MAX_BYTES];
    if (event->value_count > CAPTURE_EVENT_VALUES)
        return STATUS_LIMIT;
    TRY(writer_prepare(writer, sizeof body + 1 + VARINT_MAX_BYTES));
    if (writer_find_thread(writer, event->thread) == NULL || event->stack >= writer->next_stack)
        return STATUS_NOT_FOUND;
    size_t size_bytes = put_time(writer, event->time_ns / writer->options.tick_ns, body);
    size_bytes += varint_put(body + size_bytes, event->thread);
    size_bytes += varint_put(body + size_bytes, event->stack);
    size_bytes += varint_put(body + size_bytes, event->value_count);
    for (size_t i = 0; i < event->value_count; i++) {
        size_bytes += varint_put(body + size_bytes, event->values[i].measure);
        size_bytes += varint_put(body + size_bytes, event->values[i].amount);
    }
    TRY(writer_append_record(writer, CAPTURE_RECORD_EVENT, body, size_bytes));
    return writer_settle(writer, event->time_ns);
}

enum status capture_write_change(struct capture_writer *writer, const struct capture_change *change) {
    uint8_t body[(4 + 2 * CAPTURE_EVENT_VALUES) * VARINT_MAX_BYTES];
    if (change->value_count > CAPTURE_EVENT_VALUES)
        return STATUS_LIMIT;
    TRY(writer_prepare(writer, sizeof body + 1 + VARINT_MAX_BYTES));
    if (!writer_has_process(writer, change->process) || change->stack >= writer->next_stack)
        return STATUS_NOT_FOUND;
    size_t size_bytes = put_time(writer, change->time_ns / writer->options.tick_ns, body);
    size_bytes += varint_put(body + size_bytes, change->process);
    size_bytes += varint_put(body + size_bytes, change->stack);
    size_bytes += varint_put(body + size_bytes, change->value_count);
    for (size_t i = 0; i < change->value_count; i++) {
        size_bytes += varint_put(body + size_bytes, change->values[i].measure);
        size_bytes += varint_put(body + size_bytes, zigzag_encode(change->values[i].amount));
    }
    TRY(writer_append_record(writer, CAPTURE_RECORD_CHANGE, body, size_bytes));
    return writer_settle(writer, change->time_ns);
}

enum status capture_write_footprint(struct capture_writer *writer, const struct capture_footprint *memory) {
    const uint64_t fields[] = {memory->process,      memory->footprint_bytes, memory->peak_bytes,
                               memory->peak_ns,      memory->inherited_bytes, memory->stride_bytes,
                               memory->lost_records, memory->resident_bytes,  memory->point_count};
    enum { FIELDS = sizeof fields / sizeof fields[0] };
    if (memory->point_count > CAPTURE_FOOTPRINT_POINTS)
        return STATUS_LIMIT;
    uint8_t body[(2 + FIELDS + 2 * CAPTURE_FOOTPRINT_POINTS) * VARINT_MAX_BYTES];
    TRY(writer_prepare(writer, (2 + FIELDS + 2 * memory->point_count) * VARINT_MAX_BYTES + 1 + VARINT_MAX_BYTES));
    if (!writer_has_process(writer, memory->process))
        return STATUS_NOT_FOUND;
    size_t size_bytes = put_time(writer, memory->time_ns / writer->options.tick_ns, body);
    for (size_t i = 0; i < FIELDS; i++)
        size_bytes += varint_put(body + size_bytes, fields[i]);
    uint64_t tick = writer->tick, bytes = 0;
    for (size_t i = 0; i < memory->point_count; i++) {
        uint64_t at = memory->points[i].time_ns / writer->options.tick_ns;
        size_bytes += varint_put(body + size_bytes, zigzag_encode((int64_t)(at - tick)));
        size_bytes += varint_put(body + size_bytes, zigzag_encode((int64_t)(memory->points[i].bytes - bytes)));
        tick = at;
        bytes = memory->points[i].bytes;
    }
    size_bytes += varint_put(body + size_bytes, memory->exec_count);
    TRY(writer_append_record(writer, CAPTURE_RECORD_FOOTPRINT, body, size_bytes));
    return writer_settle(writer, memory->time_ns);
}
