/* What was allocated, and what is live of it, into the capture. */
#include "cli/recorder_state.h"

#include "base/array.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

void recorded_sites_release(struct recorded_sites *sites) {
    free(sites->stacks);
    free(sites->climbed);
    *sites = (struct recorded_sites){0};
}

/* New ids are 0. */
static enum status reserve(uint32_t **ids, size_t *capacity, size_t count) {
    size_t before = *capacity;
    TRY(array_reserve((void **)ids, capacity, count, sizeof **ids));
    if (*capacity > before)
        memset(*ids + before, 0, (*capacity - before) * sizeof **ids);
    return STATUS_OK;
}

/* Forgets the ids that do not hold any more, and makes room for all paths'. */
static enum status prepare_sites(struct recorder *recorder, struct recorded_sites *recorded,
                                 const struct sample_sites *sites) {
    recorder_follow_epoch(recorder);
    if (recorded->capacity > 0 && (recorded->epoch != recorder->epoch || recorded->serial != sites->serial))
        memset(recorded->stacks, 0, recorded->capacity * sizeof recorded->stacks[0]);
    recorded->epoch = recorder->epoch;
    recorded->serial = sites->serial;
    return reserve(&recorded->stacks, &recorded->capacity, sites->path_count);
}

static enum status intern_path(struct recorder *recorder, const struct sampled_process *process,
                               const struct sample_sites *sites, struct recorded_sites *recorded, uint32_t path) {
    size_t count = 0;
    for (uint32_t at = path; at != 0 && recorded->stacks[at] == 0; at = sites->paths[at].caller) {
        TRY(reserve(&recorded->climbed, &recorded->climbed_capacity, count + 1));
        recorded->climbed[count++] = at;
    }
    while (count-- > 0) {
        uint32_t at = recorded->climbed[count], frame = 0;
        TRY(recorder_frame_id(recorder, process, &sites->frames[sites->paths[at].frame], &frame));
        TRY(capture_intern_stack(recorder->writer, recorded->stacks[sites->paths[at].caller], frame,
                                 &recorded->stacks[at]));
    }
    return STATUS_OK;
}

/* The id of a path's stack. */
static enum status stack_of(struct recorder *recorder, const struct sampled_process *process,
                            const struct sample_sites *sites, uint32_t path, uint32_t *stack) {
    struct recorded_sites *recorded = &recorder->processes[process->number].sites;
    TRY(prepare_sites(recorder, recorded, sites));
    enum status status = intern_path(recorder, process, sites, recorded, path);
    if (status == STATUS_LIMIT) {
        TRY(capture_writer_start_epoch(recorder->writer));
        TRY(prepare_sites(recorder, recorded, sites));
        status = intern_path(recorder, process, sites, recorded, path);
    }
    /* A stack that no epoch holds keeps as many of its outer frames as one does. */
    for (; status == STATUS_LIMIT && path != 0 && recorded->stacks[path] == 0; path = sites->paths[path].caller)
        continue;
    *stack = recorded->stacks[path];
    return status == STATUS_LIMIT ? STATUS_OK : status;
}

/* Measures that are 0 are left out, but for a process's first, which say that there is something to be measured. */
static void put(bool *told, struct capture_event *event, struct capture_value *values, enum capture_measure_id measure,
                uint64_t amount) {
    bool is_variance = measure == CAPTURE_MEASURE_ALLOC_VARIANCE || measure == CAPTURE_MEASURE_COPY_VARIANCE;
    bool is_first = !told[measure] && !is_variance;
    told[measure] = true;
    if (amount > 0 || is_first)
        values[event->value_count++] = (struct capture_value){measure, amount};
}

static enum status write_allocation(struct recorder *recorder, const struct sampled_thread *thread, uint32_t stack,
                                    const struct sample_allocation *sums) {
    const struct recorded_thread *recorded = thread->receiver;
    bool *told = recorder->processes[thread->process->number].told;
    struct capture_value values[6];
    struct capture_event event = {
        .thread = recorded->id, .stack = stack, .time_ns = clock_monotonic_ns(), .values = values};
    put(told, &event, values, CAPTURE_MEASURE_ALLOC_BYTES, sums->alloc_bytes);
    put(told, &event, values, CAPTURE_MEASURE_ALLOC_COUNT, sums->alloc_count);
    put(told, &event, values, CAPTURE_MEASURE_ALLOC_VARIANCE, sums->alloc_variance);
    put(told, &event, values, CAPTURE_MEASURE_PYTHON_BYTES, sums->python_bytes);
    put(told, &event, values, CAPTURE_MEASURE_COPY_BYTES, sums->copy_bytes);
    put(told, &event, values, CAPTURE_MEASURE_COPY_VARIANCE, sums->copy_variance);
    return capture_write_event(recorder->writer, &event);
}

enum status recorder_take_allocations(struct sample_sink *sink, struct sampled_thread *thread,
                                      const struct sample_sites *sites, const struct sample_allocation *allocations,
                                      size_t count) {
    struct recorder *recorder = (struct recorder *)sink;
    for (size_t i = 0; i < count; i++) {
        uint32_t stack = 0;
        TRY(stack_of(recorder, thread->process, sites, allocations[i].path, &stack));
        TRY(write_allocation(recorder, thread, stack, &allocations[i]));
    }
    return STATUS_OK;
}

static void put_difference(struct capture_change *change, struct capture_difference *values,
                           enum capture_measure_id measure, uint64_t before, uint64_t now) {
    if (before != now)
        values[change->value_count++] = (struct capture_difference){measure, (int64_t)(now - before)};
}

static enum status write_change(struct recorder *recorder, const struct sample_memory *memory, uint32_t stack,
                                const struct sample_held *before, const struct sample_held *now) {
    struct capture_difference values[6];
    struct capture_change change = {
        .process = memory->process->number, .stack = stack, .time_ns = memory->time_ns, .values = values};
    put_difference(&change, values, CAPTURE_MEASURE_LIVE_BYTES, before->live_bytes, now->live_bytes);
    put_difference(&change, values, CAPTURE_MEASURE_LIVE_COUNT, before->live_count, now->live_count);
    put_difference(&change, values, CAPTURE_MEASURE_LIVE_VARIANCE, before->live_variance, now->live_variance);
    put_difference(&change, values, CAPTURE_MEASURE_PEAK_BYTES, before->peak_bytes, now->peak_bytes);
    put_difference(&change, values, CAPTURE_MEASURE_PEAK_VARIANCE, before->peak_variance, now->peak_variance);
    put_difference(&change, values, CAPTURE_MEASURE_TEMPORARY_BYTES, before->temporary_bytes, now->temporary_bytes);
    return capture_write_change(recorder->writer, &change);
}

static enum status write_memory(struct recorder *recorder, const struct sample_memory *memory) {
    struct capture_point points[CAPTURE_FOOTPRINT_POINTS];
    size_t count =
        memory->footprint_count < CAPTURE_FOOTPRINT_POINTS ? memory->footprint_count : CAPTURE_FOOTPRINT_POINTS;
    for (size_t i = 0; i < count; i++)
        points[i] = (struct capture_point){memory->footprint[i].time_ns, memory->footprint[i].value};
    const struct capture_footprint record = {
        .process = memory->process->number,
        .time_ns = memory->time_ns,
        .footprint_bytes = memory->footprint_bytes,
        .peak_bytes = memory->peak_bytes,
        .peak_ns = memory->peak_ns,
        .inherited_bytes = memory->inherited_bytes,
        .stride_bytes = memory->stride_bytes,
        .lost_records = memory->lost_records,
        .resident_bytes = memory->resident_bytes,
        .points = points,
        .point_count = count,
        .exec_count = recorder->processes[memory->process->number].exec_count,
    };
    return capture_write_footprint(recorder->writer, &record);
}

/* After an exec the memory is another program's. That is told before anything of it is. */
static enum status note_program(struct recorder *recorder, const struct sample_memory *memory) {
    struct recorded_process *process = &recorder->processes[memory->process->number];
    uint32_t before = process->memory_serial;
    process->memory_serial = memory->sites->serial;
    if (before == 0 || before == memory->sites->serial)
        return STATUS_OK;
    process->exec_count++;
    struct sample_memory begin = *memory;
    if (memory->footprint_count > 0 && memory->footprint[0].time_ns < memory->time_ns)
        begin.time_ns = memory->footprint[0].time_ns;
    begin.footprint_count = 0;
    return write_memory(recorder, &begin);
}

enum status recorder_take_memory(struct sample_sink *sink, const struct sample_memory *memory) {
    struct recorder *recorder = (struct recorder *)sink;
    TRY(note_program(recorder, memory));
    for (size_t i = 0; i < memory->change_count; i++) {
        const struct sample_change *change = &memory->changes[i];
        uint32_t stack = 0;
        TRY(stack_of(recorder, memory->process, memory->sites, change->path, &stack));
        TRY(write_change(recorder, memory, stack, &change->before, &change->now));
    }
    return write_memory(recorder, memory);
}
