#include "capture/copy.h"

#include "base/arena.h"
#include "base/array.h"
#include "base/map.h"

#include <stdlib.h>

/* Something that was read, and its id in the writer's epoch in which it was interned last. */
struct copied_id {
    uint32_t epoch;
    uint32_t id; /* 0: not interned yet */
};

struct copied_string {
    struct capture_text text;
    struct copied_id in_writer;
};

struct copied_frame {
    struct capture_frame frame; /* with the reader's string ids */
    struct copied_id in_writer;
};

struct copied_stack {
    uint32_t parent;
    uint32_t frame;
    uint32_t depth;
    struct copied_id in_writer;
};

/* Arrays by the reader's ids; [0] is not used. */
struct copy {
    struct capture_writer *writer;
    struct arena texts;
    struct copied_string *strings;
    struct copied_frame *frames;
    struct copied_stack *stacks;
    size_t string_count, string_capacity;
    size_t frame_count, frame_capacity;
    size_t stack_count, stack_capacity;
    uint32_t *path; /* of a stack being interned */
    size_t path_capacity;
    struct map processes; /* the reader's number -> the writer's */
    struct map threads;
    struct capture_merge *merge;
    bool has_start;
    uint64_t start_ns; /* of the capture; all captures' becomes the merge's */
    bool has_times;    /* something was told at a time since then */
};

/* Nothing is before the start: times that are have no meaning (a damaged capture's; that of a process whose end was not
 * seen), and moved down they would be far in the future. */
static uint64_t move_start(const struct copy *copy, uint64_t time_ns) {
    return copy->merge->start_ns + (time_ns > copy->start_ns ? time_ns - copy->start_ns : 0);
}

static uint64_t move_time(struct copy *copy, uint64_t time_ns) {
    copy->has_times = true;
    return move_start(copy, time_ns);
}

static bool is_interned(const struct copy *copy, const struct copied_id *known) {
    return known->id != 0 && known->epoch == capture_writer_epoch(copy->writer);
}

static void remember(const struct copy *copy, struct copied_id *known, uint32_t id) {
    *known = (struct copied_id){.epoch = capture_writer_epoch(copy->writer), .id = id};
}

static enum status on_epoch(void *context, uint32_t epoch) {
    struct copy *copy = context;
    (void)epoch;
    arena_release(&copy->texts);
    copy->string_count = copy->frame_count = copy->stack_count = 1;
    TRY(array_reserve((void **)&copy->strings, &copy->string_capacity, 1, sizeof copy->strings[0]));
    TRY(array_reserve((void **)&copy->frames, &copy->frame_capacity, 1, sizeof copy->frames[0]));
    TRY(array_reserve((void **)&copy->stacks, &copy->stack_capacity, 1, sizeof copy->stacks[0]));
    copy->strings[0] = (struct copied_string){0};
    copy->stacks[0] = (struct copied_stack){0};
    return STATUS_OK;
}

static enum status on_string(void *context, uint32_t id, struct capture_text text) {
    struct copy *copy = context;
    (void)id;
    TRY(array_reserve((void **)&copy->strings, &copy->string_capacity, copy->string_count + 1,
                      sizeof copy->strings[0]));
    const char *bytes = arena_copy_text(&copy->texts, text.bytes, text.size_bytes);
    if (bytes == NULL)
        return STATUS_FAILED;
    copy->strings[copy->string_count++] = (struct copied_string){.text = {bytes, text.size_bytes}};
    return STATUS_OK;
}

static enum status on_frame(void *context, uint32_t id, const struct capture_frame *frame) {
    struct copy *copy = context;
    (void)id;
    TRY(array_reserve((void **)&copy->frames, &copy->frame_capacity, copy->frame_count + 1, sizeof copy->frames[0]));
    copy->frames[copy->frame_count++] = (struct copied_frame){.frame = *frame};
    return STATUS_OK;
}

static enum status on_stack(void *context, uint32_t id, uint32_t parent, uint32_t frame) {
    struct copy *copy = context;
    (void)id;
    TRY(array_reserve((void **)&copy->stacks, &copy->stack_capacity, copy->stack_count + 1, sizeof copy->stacks[0]));
    copy->stacks[copy->stack_count++] =
        (struct copied_stack){.parent = parent, .frame = frame, .depth = copy->stacks[parent].depth + 1};
    return STATUS_OK;
}

static enum status intern_string(struct copy *copy, uint32_t *id) {
    struct copied_string *string = &copy->strings[*id];
    if (!is_interned(copy, &string->in_writer)) {
        TRY(capture_intern_string(copy->writer, string->text.bytes, string->text.size_bytes, id));
        remember(copy, &string->in_writer, *id);
    }
    *id = string->in_writer.id;
    return STATUS_OK;
}

static enum status intern_frame(struct copy *copy, uint32_t *id) {
    struct copied_frame *known = &copy->frames[*id];
    if (!is_interned(copy, &known->in_writer)) {
        struct capture_frame frame = known->frame;
        TRY(intern_string(copy, &frame.function));
        TRY(intern_string(copy, &frame.qualname));
        TRY(intern_string(copy, &frame.file));
        TRY(capture_intern_frame(copy->writer, &frame, id));
        remember(copy, &known->in_writer, *id);
    }
    *id = known->in_writer.id;
    return STATUS_OK;
}

/* From the innermost stack that the writer knows on. */
static enum status intern_path(struct copy *copy, uint32_t *id) {
    size_t length = 0;
    uint32_t at = *id;
    TRY(array_reserve((void **)&copy->path, &copy->path_capacity, copy->stacks[at].depth, sizeof copy->path[0]));
    for (; at != 0 && !is_interned(copy, &copy->stacks[at].in_writer); at = copy->stacks[at].parent)
        copy->path[length++] = at;
    *id = at != 0 ? copy->stacks[at].in_writer.id : 0;
    while (length-- > 0) {
        struct copied_stack *stack = &copy->stacks[copy->path[length]];
        uint32_t frame = stack->frame;
        TRY(intern_frame(copy, &frame));
        TRY(capture_intern_stack(copy->writer, *id, frame, id));
        remember(copy, &stack->in_writer, *id);
    }
    return STATUS_OK;
}

static enum status intern_stack(struct copy *copy, uint32_t *id) {
    uint32_t in_reader = *id;
    enum status status = intern_path(copy, id);
    if (status != STATUS_LIMIT)
        return status;
    TRY(capture_writer_start_epoch(copy->writer));
    *id = in_reader;
    return intern_path(copy, id);
}

/* The writer refuses what speaks of an ended process or thread. No strobe wrote that, and it is left out. */
static enum status accept(enum status status) {
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

static uint32_t number_in(const struct map *map, uint32_t number) {
    uint64_t mapped = 0;
    (void)map_get(map, number, &mapped);
    return (uint32_t)mapped;
}

static enum status on_process(void *context, const struct capture_process *process) {
    struct copy *copy = context;
    struct capture_process mapped = *process;
    uint64_t known = 0;
    bool is_known = map_get(&copy->processes, process->process, &known);
    if (!copy->merge->has_start)
        copy->merge->start_ns = process->start_ns;
    /* As profile/load.c has it. */
    bool is_earlier = !copy->has_times && is_known && copy->processes.count == 1 && process->start_ns < copy->start_ns;
    if (!copy->has_start || is_earlier)
        copy->start_ns = process->start_ns;
    copy->has_start = copy->merge->has_start = true;
    mapped.start_ns = move_start(copy, process->start_ns);
    mapped.process = is_known ? (uint32_t)known : copy->merge->next_process++;
    TRY(map_set(&copy->processes, process->process, mapped.process));
    return accept(capture_add_process(copy->writer, &mapped));
}

static enum status on_process_end(void *context, uint32_t process, uint64_t time_ns, int32_t wait_status) {
    struct copy *copy = context;
    return accept(
        capture_end_process(copy->writer, number_in(&copy->processes, process), move_time(copy, time_ns), wait_status));
}

static enum status on_counters(void *context, uint32_t process, const struct capture_counters *counters) {
    struct copy *copy = context;
    return accept(capture_write_counters(copy->writer, number_in(&copy->processes, process), counters));
}

static enum status on_thread(void *context, uint32_t id, const struct capture_thread *thread) {
    struct copy *copy = context;
    struct capture_thread mapped = *thread;
    uint64_t known = 0;
    uint32_t in_writer = 0;
    mapped.process = number_in(&copy->processes, thread->process);
    if (map_get(&copy->threads, id, &known))
        return accept(capture_update_thread(copy->writer, (uint32_t)known, &mapped));
    TRY(accept(capture_add_thread(copy->writer, &mapped, &in_writer)));
    return map_set(&copy->threads, id, in_writer);
}

static enum status on_thread_cpu(void *context, uint32_t id, uint64_t cpu_ns) {
    struct copy *copy = context;
    return accept(capture_write_thread_cpu(copy->writer, number_in(&copy->threads, id), cpu_ns));
}

static enum status on_thread_end(void *context, uint32_t id, uint64_t time_ns) {
    struct copy *copy = context;
    uint32_t in_writer = number_in(&copy->threads, id);
    (void)map_remove(&copy->threads, id);
    return accept(capture_end_thread(copy->writer, in_writer, move_time(copy, time_ns)));
}

static enum status on_sample(void *context, const struct capture_sample *sample) {
    struct copy *copy = context;
    struct capture_sample mapped = *sample;
    mapped.thread = number_in(&copy->threads, sample->thread);
    TRY(intern_stack(copy, &mapped.stack));
    mapped.time_ns = move_time(copy, sample->time_ns);
    return accept(capture_write_sample(copy->writer, &mapped));
}

static enum status on_event(void *context, const struct capture_event *event) {
    struct copy *copy = context;
    struct capture_event mapped = *event;
    mapped.thread = number_in(&copy->threads, event->thread);
    TRY(intern_stack(copy, &mapped.stack));
    mapped.time_ns = move_time(copy, event->time_ns);
    return accept(capture_write_event(copy->writer, &mapped));
}

static enum status on_change(void *context, const struct capture_change *change) {
    struct copy *copy = context;
    struct capture_change mapped = *change;
    mapped.process = number_in(&copy->processes, change->process);
    TRY(intern_stack(copy, &mapped.stack));
    mapped.time_ns = move_time(copy, change->time_ns);
    return accept(capture_write_change(copy->writer, &mapped));
}

static enum status on_footprint(void *context, const struct capture_footprint *memory) {
    struct copy *copy = context;
    struct capture_footprint mapped = *memory;
    struct capture_point points[CAPTURE_FOOTPRINT_POINTS];
    for (size_t i = 0; i < memory->point_count; i++)
        points[i] = (struct capture_point){move_time(copy, memory->points[i].time_ns), memory->points[i].bytes};
    mapped.process = number_in(&copy->processes, memory->process);
    mapped.points = points;
    mapped.time_ns = move_time(copy, memory->time_ns);
    mapped.peak_ns = move_time(copy, memory->peak_ns);
    return accept(capture_write_footprint(copy->writer, &mapped));
}

/* What still lives at the end of one capture must not be repeated in each epoch of the next. */
static enum status end_processes(struct copy *copy) {
    for (size_t i = 0; i < copy->processes.capacity; i++) {
        const struct map_entry *entry = &copy->processes.entries[i];
        if (entry->used)
            TRY(accept(capture_end_process(copy->writer, (uint32_t)entry->value, 0, -1)));
    }
    return STATUS_OK;
}

static void release(struct copy *copy) {
    arena_release(&copy->texts);
    free(copy->strings);
    free(copy->frames);
    free(copy->stacks);
    free(copy->path);
    map_release(&copy->processes);
    map_release(&copy->threads);
}

enum status capture_copy(const char *path, struct capture_writer *writer, struct capture_merge *merge,
                         struct error *error) {
    struct copy copy = {.writer = writer, .merge = merge};
    /* No facts: they are the writer's own, and those of one capture would not hold for the others. */
    const struct capture_visitor visitor = {
        &copy,       on_epoch,  NULL,          on_string,     on_frame,  on_stack, on_process, on_process_end,
        on_counters, on_thread, on_thread_cpu, on_thread_end, on_sample, on_event, on_change,  on_footprint};
    enum status status = capture_read(path, &visitor, NULL, error);
    enum status ended = end_processes(&copy);
    release(&copy);
    if (capture_writer_error(writer)->status != STATUS_OK)
        return error_set(error, STATUS_FAILED, "%s", capture_writer_error(writer)->text);
    return status != STATUS_OK ? status : ended;
}
