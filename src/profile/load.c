/* From captures into the model. */
#include "base/map.h"
#include "profile/builder.h"

#include <stdlib.h>

static const size_t DEFAULT_MAX_SAMPLES = 50000000;

/* The reader's dense ids, as the profile has them. [0] is 'none'. */
struct id_list {
    uint32_t *ids;
    size_t count, capacity;
};

struct loader {
    struct profile *profile;
    struct profile_load_options options;
    const char **strings;
    size_t string_count, string_capacity;
    struct id_list frames, stacks;
    struct map processes; /* the capture's number -> index */
    struct map threads;
    bool has_start;
    uint64_t start_ns; /* of the capture's first process: the profile's time line begins there */
    bool has_times;    /* something was told on that time line */
    struct capture_sample last;
    bool has_last;
};

static enum status append_id(struct id_list *list, uint32_t id) {
    TRY(builder_reserve((void **)&list->ids, list->count, &list->capacity, sizeof list->ids[0]));
    list->ids[list->count++] = id;
    return STATUS_OK;
}

static enum status append_string(struct loader *loader, const char *string) {
    TRY(builder_reserve((void **)&loader->strings, loader->string_count, &loader->string_capacity,
                        sizeof loader->strings[0]));
    loader->strings[loader->string_count++] = string;
    return STATUS_OK;
}

static enum status on_epoch(void *context, uint32_t epoch) {
    struct loader *loader = context;
    (void)epoch;
    loader->string_count = loader->frames.count = loader->stacks.count = 0;
    TRY(append_string(loader, ""));
    TRY(append_id(&loader->frames, 0));
    return append_id(&loader->stacks, 0);
}

static enum status on_fact(void *context, struct capture_text key, struct capture_text value) {
    return builder_append_fact(((struct loader *)context)->profile, key, value);
}

static enum status on_string(void *context, uint32_t id, struct capture_text text) {
    struct loader *loader = context;
    const char *interned = NULL;
    (void)id;
    TRY(profile_intern_text(loader->profile, text, &interned));
    return append_string(loader, interned);
}

static enum status on_frame(void *context, uint32_t id, const struct capture_frame *frame) {
    struct loader *loader = context;
    struct profile_frame like = {
        .kind = frame->kind,
        .function = loader->strings[frame->function],
        .qualname = loader->strings[frame->qualname],
        .file = loader->strings[frame->file],
        .line = frame->line,
        .end_line = frame->end_line,
        .column = frame->column,
        .end_column = frame->end_column,
        .first_line = frame->first_line,
    };
    uint32_t index = 0;
    (void)id;
    TRY(builder_intern_frame(loader->profile, &like, &index));
    return append_id(&loader->frames, index);
}

static enum status on_stack(void *context, uint32_t id, uint32_t parent, uint32_t frame) {
    struct loader *loader = context;
    uint32_t index = 0;
    (void)id;
    TRY(profile_intern_stack(loader->profile, loader->stacks.ids[parent], loader->frames.ids[frame], &index));
    return append_id(&loader->stacks, index);
}

static uint64_t on_time_line(struct loader *loader, uint64_t time_ns) {
    loader->has_times = true;
    return time_ns > loader->start_ns ? time_ns - loader->start_ns : 0;
}

/* The reader tells only of what it told before, so the maps have it. */
static uint32_t index_in(const struct map *map, uint32_t id) {
    uint64_t index = 0;
    (void)map_get(map, id, &index);
    return (uint32_t)index;
}

static enum status on_process(void *context, const struct capture_process *process) {
    struct loader *loader = context;
    struct capture_process shifted = *process;
    uint64_t known = 0;
    uint32_t index = 0;
    bool is_known = map_get(&loader->processes, process->process, &known);
    /* Who looks from inside began earlier than who looked from outside and told of it first. */
    bool is_earlier =
        !loader->has_times && is_known && loader->processes.count == 1 && process->start_ns < loader->start_ns;
    if (!loader->has_start || is_earlier)
        loader->start_ns = process->start_ns;
    loader->has_start = true;
    shifted.start_ns = process->start_ns > loader->start_ns ? process->start_ns - loader->start_ns : 0;
    if (is_known)
        return builder_set_process(loader->profile, (uint32_t)known, &shifted);
    TRY(profile_append_process(loader->profile, &shifted, &index));
    return map_set(&loader->processes, process->process, index);
}

static enum status on_process_end(void *context, uint32_t process, uint64_t time_ns, int32_t wait_status) {
    struct loader *loader = context;
    uint32_t index = index_in(&loader->processes, process);
    loader->profile->processes[index].ended = wait_status != -1;
    loader->profile->processes[index].wait_status = wait_status;
    builder_note_time(loader->profile, index, on_time_line(loader, time_ns));
    return STATUS_OK;
}

static enum status on_counters(void *context, uint32_t process, const struct capture_counters *counters) {
    struct loader *loader = context;
    loader->profile->processes[index_in(&loader->processes, process)].counters = *counters;
    return STATUS_OK;
}

static enum status on_thread(void *context, uint32_t id, const struct capture_thread *thread) {
    struct loader *loader = context;
    struct capture_thread mapped = *thread;
    uint64_t known = 0;
    uint32_t index = 0;
    mapped.process = index_in(&loader->processes, thread->process);
    if (map_get(&loader->threads, id, &known))
        return builder_set_thread(loader->profile, (uint32_t)known, &mapped);
    TRY(profile_append_thread(loader->profile, &mapped, &index));
    return map_set(&loader->threads, id, index);
}

static enum status on_thread_cpu(void *context, uint32_t id, uint64_t cpu_ns) {
    struct loader *loader = context;
    struct profile_thread *thread = &loader->profile->threads[index_in(&loader->threads, id)];
    thread->has_cpu = true;
    thread->cpu_ns = cpu_ns;
    return STATUS_OK;
}

static enum status on_thread_end(void *context, uint32_t id, uint64_t time_ns) {
    (void)time_ns;
    (void)map_remove(&((struct loader *)context)->threads, id);
    return STATUS_OK;
}

/* A capture that has no end, or not yet, has no counters either, but it has the samples. What it does say counts. */
static void count_look(struct loader *loader, uint32_t thread) {
    loader->profile->processes[loader->profile->threads[thread].process].counters.taken++;
}

/* The agent looks at a thread once at one instant; the look may come in parts. */
static bool is_part(const struct loader *loader, const struct capture_sample *sample) {
    const struct profile_thread *thread = &loader->profile->threads[index_in(&loader->threads, sample->thread)];
    return loader->has_last && loader->last.thread == sample->thread && loader->last.time_ns == sample->time_ns &&
           loader->profile->processes[thread->process].mode == CAPTURE_MODE_CPU;
}

static enum status on_sample(void *context, const struct capture_sample *sample) {
    struct loader *loader = context;
    struct capture_sample mapped = *sample;
    bool keep = loader->options.with_samples && loader->profile->sample_count < loader->options.max_samples;
    bool continues = is_part(loader, sample);
    loader->last = *sample;
    loader->has_last = true;
    mapped.thread = index_in(&loader->threads, sample->thread);
    if (!continues)
        count_look(loader, mapped.thread);
    if (loader->options.without_idle && sample->run == CAPTURE_IDLE)
        return STATUS_OK;
    mapped.stack = loader->stacks.ids[sample->stack];
    mapped.time_ns = on_time_line(loader, sample->time_ns);
    if (loader->options.with_samples && !keep)
        loader->profile->samples_cut = true;
    return builder_add_sample(loader->profile, &mapped, keep, continues);
}

static bool is_cpu_part(uint32_t measure) {
    return measure == MEASURE_CPU_PYTHON_NS || measure == MEASURE_CPU_NATIVE_NS || measure == MEASURE_CPU_KERNEL_NS;
}

/* Who tells one part of the CPU time knows all: a part that never comes is a true 0. */
static enum status add_event_value(struct loader *loader, const struct capture_event *event, uint32_t thread,
                                   const struct capture_value *value) {
    uint32_t stack = loader->stacks.ids[event->stack];
    if (value->measure >= MEASURE_COUNT)
        return STATUS_OK;
    if (is_cpu_part(value->measure))
        for (enum measure part = MEASURE_CPU_PYTHON_NS; part <= MEASURE_CPU_KERNEL_NS; part++)
            TRY(profile_add_value(loader->profile, thread, stack, part, 0));
    if (value->measure == MEASURE_ALLOC_BYTES)
        TRY(builder_note_allocator(loader->profile, thread, stack));
    return profile_add_value(loader->profile, thread, stack, (enum measure)value->measure, value->amount);
}

static enum status on_event(void *context, const struct capture_event *event) {
    struct loader *loader = context;
    uint32_t thread = index_in(&loader->threads, event->thread);
    uint32_t process = loader->profile->threads[thread].process;
    uint64_t time_ns = on_time_line(loader, event->time_ns);
    builder_note_time(loader->profile, process, time_ns);
    /* Who was seen to wait was seen; what was allocated is told later. */
    if (event->value_count > 0 && event->values[0].measure == MEASURE_WAIT_NS) {
        builder_note_look(loader->profile, process, loader->stacks.ids[event->stack], time_ns);
        count_look(loader, thread);
    }
    for (size_t i = 0; i < event->value_count; i++)
        TRY(add_event_value(loader, event, thread, &event->values[i]));
    return STATUS_OK;
}

static enum status on_change(void *context, const struct capture_change *change) {
    struct loader *loader = context;
    uint32_t process = index_in(&loader->processes, change->process);
    uint32_t stack = loader->stacks.ids[change->stack];
    builder_note_time(loader->profile, process, on_time_line(loader, change->time_ns));
    for (size_t i = 0; i < change->value_count; i++)
        if (change->values[i].measure < MEASURE_COUNT)
            TRY(profile_add_difference(loader->profile, process, stack, (enum measure)change->values[i].measure,
                                       change->values[i].amount));
    return STATUS_OK;
}

static enum status on_footprint(void *context, const struct capture_footprint *memory) {
    struct loader *loader = context;
    struct capture_footprint mapped = *memory;
    struct capture_point points[CAPTURE_FOOTPRINT_POINTS];
    for (size_t i = 0; i < memory->point_count; i++)
        points[i] = (struct capture_point){on_time_line(loader, memory->points[i].time_ns), memory->points[i].bytes};
    mapped.points = points;
    mapped.time_ns = on_time_line(loader, memory->time_ns);
    mapped.peak_ns = on_time_line(loader, memory->peak_ns);
    return profile_set_footprint(loader->profile, index_in(&loader->processes, memory->process), &mapped);
}

static const struct capture_visitor CALLBACKS = {
    .epoch = on_epoch,
    .fact = on_fact,
    .string = on_string,
    .frame = on_frame,
    .stack = on_stack,
    .process = on_process,
    .process_end = on_process_end,
    .counters = on_counters,
    .thread = on_thread,
    .thread_cpu = on_thread_cpu,
    .thread_end = on_thread_end,
    .sample = on_sample,
    .event = on_event,
    .change = on_change,
    .footprint = on_footprint,
};

/* Of the capture at `path`, or of bytes when it is NULL. */
static enum status add_capture(struct profile *profile, const char *path, const uint8_t *bytes, size_t size_bytes,
                               const struct profile_load_options *options, struct error *error) {
    struct loader loader = {.profile = profile};
    struct capture_visitor visitor = CALLBACKS;
    struct capture_damage damage = {.ended = false};
    visitor.context = &loader;
    if (options != NULL)
        loader.options = *options;
    if (loader.options.max_samples == 0)
        loader.options.max_samples = DEFAULT_MAX_SAMPLES;
    enum status status = path != NULL ? capture_read(path, &visitor, &damage, error)
                                      : capture_read_bytes(bytes, size_bytes, &visitor, &damage, error);
    profile->damage.ended = profile->damage.ended && damage.ended;
    profile->damage.lost_bytes = saturating_add(profile->damage.lost_bytes, damage.lost_bytes);
    profile->damage.lost_chunks = saturating_add(profile->damage.lost_chunks, damage.lost_chunks);
    profile->damage.lost_records = saturating_add(profile->damage.lost_records, damage.lost_records);
    builder_finish(profile);
    free(loader.strings);
    free(loader.frames.ids);
    free(loader.stacks.ids);
    map_release(&loader.processes);
    map_release(&loader.threads);
    return status;
}

enum status profile_add_capture(struct profile *profile, const char *path, const struct profile_load_options *options,
                                struct error *error) {
    return add_capture(profile, path, NULL, 0, options, error);
}

enum status profile_add_capture_bytes(struct profile *profile, const uint8_t *bytes, size_t size_bytes,
                                      const struct profile_load_options *options, struct error *error) {
    return add_capture(profile, NULL, bytes, size_bytes, options, error);
}
