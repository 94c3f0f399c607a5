#include "export/timeline.h"

#include <stdlib.h>
#include <string.h>

static uint32_t thread_of(const struct timeline *timeline, size_t number) {
    const struct profile *profile = timeline->selection->profile;
    return timeline->in_order ? profile->samples[number].thread : profile->entries[number].thread;
}

/* Where a sample's weight is wall time, what the thread did tells which other measures it is of. */
static bool is_of_measure(const struct profile_sample *sample, enum measure measure) {
    switch (measure) {
    case MEASURE_CPU_NS:
        return sample->run == CAPTURE_RUNNING;
    case MEASURE_WAIT_NS:
        return sample->run == CAPTURE_IDLE;
    case MEASURE_GIL_WAIT_NS:
        return sample->run == CAPTURE_IDLE && sample->gil == CAPTURE_GIL_WAITING;
    default:
        return true;
    }
}

static bool is_shown(const struct timeline *timeline, size_t number) {
    const struct selection *selection = timeline->selection;
    const struct profile *profile = selection->profile;
    if (timeline->in_order)
        return (timeline->of_cpu || is_of_measure(&profile->samples[number], timeline->measure)) &&
               selection_has(selection, profile->samples[number].thread, profile->samples[number].stack);
    return profile_value(profile, number, timeline->measure) > 0 &&
           selection_has(selection, profile->entries[number].thread, profile->entries[number].stack);
}

/* Counting sort: stable, so that time stays in order. */
static void sort_by_thread(struct timeline *timeline, size_t count) {
    size_t thread_count = timeline->selection->profile->thread_count;
    for (size_t i = 0; i < count; i++)
        if (is_shown(timeline, i))
            timeline->starts[thread_of(timeline, i) + 1]++;
    for (size_t i = 0; i < thread_count; i++)
        timeline->starts[i + 1] += timeline->starts[i];
    for (size_t i = 0; i < count; i++)
        if (is_shown(timeline, i))
            timeline->order[timeline->starts[thread_of(timeline, i)]++] = (uint32_t)i;
    /* Each start now stands where the next one's was. */
    memmove(timeline->starts + 1, timeline->starts, thread_count * sizeof timeline->starts[0]);
    timeline->starts[0] = 0;
}

/* Whether the samples' weights are of this measure, the same for all processes, and of what. */
static bool samples_have(const struct profile *profile, enum measure measure, bool *of_cpu) {
    *of_cpu = profile->process_count > 0 && profile->processes[0].mode == CAPTURE_MODE_CPU;
    for (size_t i = 1; i < profile->process_count; i++)
        if ((profile->processes[i].mode == CAPTURE_MODE_CPU) != *of_cpu)
            return false;
    if (*of_cpu)
        return measure == MEASURE_CPU_NS;
    return measure == MEASURE_WALL_NS || measure == MEASURE_CPU_NS || measure == MEASURE_WAIT_NS ||
           measure == MEASURE_GIL_WAIT_NS;
}

enum status timeline_init(struct timeline *timeline, const struct selection *selection, enum measure measure,
                          bool in_order) {
    const struct profile *profile = selection->profile;
    timeline->selection = selection;
    timeline->measure = measure;
    timeline->separate = false;
    timeline->of_cpu = false;
    timeline->in_order = in_order && profile->samples != NULL && profile->sample_count > 0 && !profile->samples_cut &&
                         profile->sample_count < UINT32_MAX && samples_have(profile, measure, &timeline->of_cpu);
    size_t count = timeline->in_order ? profile->sample_count : profile->entry_count;
    timeline->starts = calloc(profile->thread_count + 1, sizeof timeline->starts[0]);
    timeline->order = calloc(count + 1, sizeof timeline->order[0]);
    if (timeline->starts == NULL || timeline->order == NULL) {
        timeline_release(timeline);
        return STATUS_FAILED;
    }
    sort_by_thread(timeline, count);
    return STATUS_OK;
}

void timeline_release(struct timeline *timeline) {
    free(timeline->starts);
    free(timeline->order);
    timeline->starts = NULL;
    timeline->order = NULL;
}

static void span_of_sample(const struct timeline *timeline, size_t number, uint64_t end_ns, struct span *span) {
    const struct profile_sample *sample = &timeline->selection->profile->samples[number];
    /* A sample stands for the time before it. */
    uint64_t start = sample->time_ns > sample->weight_ns ? sample->time_ns - sample->weight_ns : 0;
    span->start_ns = start > end_ns ? start : end_ns;
    span->length_ns = sample->time_ns > span->start_ns ? sample->time_ns - span->start_ns : 0;
    span->weight = sample->weight_ns;
    span->samples = 1;
    span->stack = selection_stack(timeline->selection, sample->stack);
    span->run = sample->run;
}

static void span_of_entry(const struct timeline *timeline, size_t number, uint64_t end_ns, struct span *span) {
    const struct profile *profile = timeline->selection->profile;
    span->start_ns = end_ns;
    span->weight = profile_value(profile, number, timeline->measure);
    span->length_ns = span->weight;
    span->samples = profile_value(profile, number, MEASURE_SAMPLES);
    span->stack = selection_stack(timeline->selection, profile->entries[number].stack);
    span->run = CAPTURE_RUN_UNKNOWN;
}

static void span_at(const struct timeline *timeline, size_t place, uint64_t end_ns, struct span *span) {
    size_t number = timeline->order[place];
    if (timeline->in_order)
        span_of_sample(timeline, number, end_ns, span);
    else
        span_of_entry(timeline, number, end_ns, span);
}

/* A sample stands for the time since the one before. On the wall clock there is no gap then but for the rounding of
 * times; a sample of CPU time is shorter by what the thread had to wait for a CPU. */
bool timeline_touches(const struct timeline *timeline, uint64_t end_ns, const struct span *next) {
    enum { OF_CPU = 2, OF_WALL = 16 };
    return next->start_ns <= end_ns + next->length_ns / (timeline->of_cpu ? OF_CPU : OF_WALL);
}

bool timeline_next(const struct timeline *timeline, uint32_t thread, struct timeline_cursor *cursor,
                   struct span *span) {
    size_t end = timeline->starts[thread + 1];
    size_t place = timeline->starts[thread] + cursor->next;
    if (place >= end)
        return false;
    span_at(timeline, place++, cursor->end_ns, span);
    while (place < end && !timeline->separate) {
        struct span next;
        span_at(timeline, place, span->start_ns + span->length_ns, &next);
        if (next.stack != span->stack || next.run != span->run ||
            !timeline_touches(timeline, span->start_ns + span->length_ns, &next))
            break;
        span->length_ns = next.start_ns + next.length_ns - span->start_ns;
        span->weight += next.weight;
        span->samples += next.samples;
        place++;
    }
    cursor->next = place - timeline->starts[thread];
    cursor->end_ns = span->start_ns + span->length_ns;
    return true;
}
