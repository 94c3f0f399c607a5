#include "capture/reader_state.h"

/* A signed step of a counter that must not leave its range. */
static enum status step_tick(struct reader *reader, struct cursor *cursor) {
    uint64_t code = 0;
    TRY(cursor_take(cursor, &code));
    int64_t step = zigzag_decode(code);
    bool is_outside = step >= 0 ? __builtin_add_overflow(reader->tick, (uint64_t)step, &reader->tick)
                                : __builtin_sub_overflow(reader->tick, 0 - (uint64_t)step, &reader->tick);
    return is_outside ? STATUS_DAMAGED : STATUS_OK;
}

static enum status take_thread_id(struct cursor *cursor, uint32_t *id) {
    uint64_t wide = 0;
    TRY(cursor_take(cursor, &wide));
    *id = (uint32_t)wide;
    return wide > 0 && wide <= UINT32_MAX ? STATUS_OK : STATUS_DAMAGED;
}

/* Whose sample it is, by the rules of the writer's choose_thread. */
static enum status choose_thread(struct reader *reader, uint8_t how, struct cursor *cursor, uint32_t *id) {
    struct reader_thread *previous = reader_find_thread(reader, reader->previous_thread);
    if (how == SAMPLE_THREAD_GIVEN)
        TRY(take_thread_id(cursor, id));
    else if (how == SAMPLE_THREAD_SAME && previous != NULL)
        *id = reader->previous_thread;
    else if (how == SAMPLE_THREAD_NEXT && previous != NULL && previous->next_thread != 0)
        *id = previous->next_thread;
    else
        return STATUS_DAMAGED;
    if (previous != NULL && *id != reader->previous_thread)
        previous->next_thread = *id;
    reader->previous_thread = *id;
    return STATUS_OK;
}

static enum status take_stack(uint8_t fields, struct cursor *cursor, struct reader_thread *thread, bool is_first) {
    uint64_t stack = 0;
    if ((fields & SAMPLE_STACK_MASK) == SAMPLE_STACK_GIVEN) {
        TRY(cursor_take(cursor, &stack));
        thread->stack = (uint32_t)stack;
        return stack <= UINT32_MAX ? STATUS_OK : STATUS_DAMAGED;
    }
    return (fields & SAMPLE_STACK_MASK) == SAMPLE_STACK_SAME && !is_first ? STATUS_OK : STATUS_DAMAGED;
}

static enum status take_state(uint8_t fields, struct cursor *cursor, struct reader_thread *thread, bool is_first) {
    if (!(fields & SAMPLE_HAS_STATE))
        return is_first ? STATUS_DAMAGED : STATUS_OK;
    if (cursor->at == cursor->end)
        return STATUS_DAMAGED;
    thread->state = *cursor->at++;
    return STATUS_OK;
}

static enum status take_weight(const struct reader *reader, uint8_t fields, struct cursor *cursor,
                               const struct reader_thread *thread, bool is_first, uint64_t *weight_ns) {
    uint64_t weight = 0;
    if (fields & SAMPLE_HAS_WEIGHT)
        TRY(cursor_take(cursor, &weight));
    else if (is_first || reader->tick < thread->tick)
        return STATUS_DAMAGED;
    else
        weight = reader->tick - thread->tick;
    return __builtin_mul_overflow(weight, reader->tick_ns, weight_ns) ? STATUS_DAMAGED : STATUS_OK;
}

enum status reader_tell_sample(struct reader *reader, uint8_t fields, struct cursor *cursor) {
    struct capture_sample sample = {0};
    struct reader_thread *thread = NULL;
    if (fields & SAMPLE_HAS_TIME)
        TRY(step_tick(reader, cursor));
    TRY(choose_thread(reader, fields & SAMPLE_THREAD_MASK, cursor, &sample.thread));
    TRY(reader_thread_of(reader, sample.thread, &thread));
    bool is_first = thread->chunk != reader->chunk;
    TRY(take_stack(fields, cursor, thread, is_first));
    TRY(take_state(fields, cursor, thread, is_first));
    TRY(take_weight(reader, fields, cursor, thread, is_first, &sample.weight_ns));
    if (__builtin_mul_overflow(reader->tick, reader->tick_ns, &sample.time_ns))
        return STATUS_DAMAGED;
    if (is_first)
        thread->next_thread = 0;
    thread->chunk = reader->chunk;
    thread->tick = reader->tick;
    if (!thread->told || !id_table_find(&reader->stacks, thread->stack, &sample.stack))
        return STATUS_NOT_FOUND;
    /* 3 is no run state of this version: unknown. */
    unsigned run = thread->state & STATE_RUN_MASK;
    sample.run = run <= CAPTURE_IDLE ? (enum capture_run)run : CAPTURE_RUN_UNKNOWN;
    sample.gil = (enum capture_gil)(thread->state >> STATE_GIL_SHIFT & STATE_GIL_MASK);
    sample.collecting = thread->state & STATE_COLLECTING;
    return reader->visitor->sample != NULL
               ? reader_obey(reader, reader->visitor->sample(reader->visitor->context, &sample))
               : STATUS_OK;
}

enum status reader_tell_event(struct reader *reader, struct cursor *cursor) {
    struct capture_value values[CAPTURE_EVENT_VALUES];
    struct capture_event event = {.values = values};
    struct reader_thread *thread = NULL;
    uint64_t stack = 0;
    uint64_t count = 0;
    TRY(step_tick(reader, cursor));
    TRY(take_thread_id(cursor, &event.thread));
    TRY(cursor_take(cursor, &stack));
    TRY(cursor_take(cursor, &count));
    if (count > CAPTURE_EVENT_VALUES || __builtin_mul_overflow(reader->tick, reader->tick_ns, &event.time_ns))
        return STATUS_DAMAGED;
    for (; event.value_count < count; event.value_count++) {
        uint64_t measure = 0;
        TRY(cursor_take(cursor, &measure));
        TRY(cursor_take(cursor, &values[event.value_count].amount));
        if (measure > UINT32_MAX)
            return STATUS_DAMAGED;
        values[event.value_count].measure = (uint32_t)measure;
    }
    TRY(reader_thread_of(reader, event.thread, &thread));
    if (!thread->told || !id_table_find(&reader->stacks, stack, &event.stack))
        return STATUS_NOT_FOUND;
    return reader->visitor->event != NULL
               ? reader_obey(reader, reader->visitor->event(reader->visitor->context, &event))
               : STATUS_OK;
}

static enum status take_differences(struct cursor *cursor, struct capture_difference *values, size_t *value_count) {
    uint64_t count = 0;
    TRY(cursor_take(cursor, &count));
    if (count > CAPTURE_EVENT_VALUES)
        return STATUS_DAMAGED;
    for (; *value_count < count; (*value_count)++) {
        uint64_t measure = 0, amount = 0;
        TRY(cursor_take(cursor, &measure));
        TRY(cursor_take(cursor, &amount));
        if (measure > UINT32_MAX)
            return STATUS_DAMAGED;
        values[*value_count] = (struct capture_difference){(uint32_t)measure, zigzag_decode(amount)};
    }
    return STATUS_OK;
}

enum status reader_tell_change(struct reader *reader, struct cursor *cursor) {
    struct capture_difference values[CAPTURE_EVENT_VALUES];
    struct capture_change change = {.values = values};
    uint64_t stack = 0;
    TRY(step_tick(reader, cursor));
    enum status known = reader_take_process(reader, cursor, &change.process);
    if (known != STATUS_OK && known != STATUS_NOT_FOUND)
        return known;
    TRY(cursor_take(cursor, &stack));
    TRY(take_differences(cursor, values, &change.value_count));
    if (__builtin_mul_overflow(reader->tick, reader->tick_ns, &change.time_ns))
        return STATUS_DAMAGED;
    if (known != STATUS_OK || !id_table_find(&reader->stacks, stack, &change.stack))
        return STATUS_NOT_FOUND;
    return reader->visitor->change != NULL
               ? reader_obey(reader, reader->visitor->change(reader->visitor->context, &change))
               : STATUS_OK;
}

static enum status take_points(const struct reader *reader, struct cursor *cursor, struct capture_point *points,
                               size_t count) {
    uint64_t tick = reader->tick, bytes = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t step = 0, rise = 0;
        TRY(cursor_take(cursor, &step));
        TRY(cursor_take(cursor, &rise));
        tick += (uint64_t)zigzag_decode(step);
        bytes += (uint64_t)zigzag_decode(rise);
        points[i].bytes = bytes;
        if (__builtin_mul_overflow(tick, reader->tick_ns, &points[i].time_ns))
            return STATUS_DAMAGED;
    }
    return STATUS_OK;
}

static enum status take_memory(const struct reader *reader, struct cursor *cursor, struct capture_footprint *memory,
                               uint64_t *point_count) {
    uint64_t *const fields[] = {
        &memory->footprint_bytes, &memory->peak_bytes,   &memory->peak_ns,        &memory->inherited_bytes,
        &memory->stride_bytes,    &memory->lost_records, &memory->resident_bytes, point_count};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        TRY(cursor_take(cursor, fields[i]));
    bool is_outside = __builtin_mul_overflow(reader->tick, reader->tick_ns, &memory->time_ns);
    return is_outside || *point_count > CAPTURE_FOOTPRINT_POINTS ? STATUS_DAMAGED : STATUS_OK;
}

enum status reader_tell_footprint(struct reader *reader, struct cursor *cursor) {
    struct capture_point points[CAPTURE_FOOTPRINT_POINTS];
    struct capture_footprint memory = {.points = points};
    uint64_t count = 0;
    TRY(step_tick(reader, cursor));
    TRY(reader_take_process(reader, cursor, &memory.process));
    TRY(take_memory(reader, cursor, &memory, &count));
    TRY(take_points(reader, cursor, points, (size_t)count));
    memory.point_count = (size_t)count;
    if (cursor->at < cursor->end)
        TRY(cursor_take(cursor, &memory.exec_count));
    return reader->visitor->footprint != NULL
               ? reader_obey(reader, reader->visitor->footprint(reader->visitor->context, &memory))
               : STATUS_OK;
}
