#include "sampler/agent_memory.h"

#include "base/array.h"
#include "base/clock.h"
#include "sampler/agent_thread.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_QUEUE = 1 << 22,
    MAX_FOOTPRINT_POINTS = 24,
    COUNT_UNIT = 1024,
    MAX_STARTS = 1 << 16,
    CHANGE_BYTES = 16,
    POINT_BYTES = 6,
    FLICKER_SHARE = 256
};

/* The longer it runs the rarer the sink is told, within these bounds; and never more than this many bytes a second,
 * about. */
static const uint64_t TELL_SHARE = 100;
static const uint64_t SHORTEST_PERIOD_NS = 20 * NS_PER_MS;
static const uint64_t LONGEST_PERIOD_NS = 5 * NS_PER_S;
static const uint64_t RESIDENT_PERIOD_NS = 20 * NS_PER_MS;
static const uint64_t BYTES_PER_S = 32 << 10;

/* ------------------------------------------------------------------------------------------------ making ------ */

static enum status enter_mark(struct agent_memory *memory, enum sample_frame_kind kind, uint32_t *path) {
    const struct sample_frame frame = {.instruction_bytes = -1, .kind = kind};
    return agent_sites_enter(&memory->sites, *path, &frame, path);
}

enum status agent_memory_init(struct agent_memory *memory, const struct wire_region *facts, struct agent_codes *codes) {
    memory->is_on = facts->memory_stride_bytes != 0;
    memory->stride_bytes = facts->memory_stride_bytes;
    memory->start_ns = memory->due_ns = clock_monotonic_ns();
    memory->footprint.limit = MAX_FOOTPRINT_POINTS;
    memory->inherited_bytes = facts->inherited_bytes > 0 ? (uint64_t)facts->inherited_bytes : 0;
    if (!memory->is_on)
        return STATUS_OK;
    uint32_t unknown = 0;
    TRY(agent_sites_init(&memory->sites, codes, ++*codes->last_serial));
    TRY(enter_mark(memory, SAMPLE_FRAME_UNREADABLE, &unknown));
    return agent_exact_define(&memory->exact, WIRE_SITE_UNKNOWN, unknown);
}

void agent_memory_release(struct agent_memory *memory) {
    if (!memory->is_on)
        return;
    agent_sites_release(&memory->sites);
    agent_heap_release(&memory->heap);
    map_release(&memory->starts);
    agent_exact_release(&memory->exact);
    series_release(&memory->footprint);
    free(memory->queue);
    free(memory->changes);
}

void agent_allocations_release(struct agent_allocations *allocations) {
    map_release(&allocations->index);
    free(allocations->items);
}

/* ------------------------------------------------------------------------------------------------ paths ------- */

/* That of the frames that the thread shows, from the first one on whose path is not known. */
static enum status path_of_frames(struct agent_memory *memory, const struct agent_thread *thread, size_t known,
                                  uint32_t *paths, uint32_t *path) {
    *path = known > 0 ? paths[known - 1] : 0;
    for (size_t i = known; i < thread->count; i++) {
        TRY(agent_sites_enter(&memory->sites, *path, &thread->frames[i], path));
        if (paths != NULL)
            paths[i] = *path;
    }
    return STATUS_OK;
}

static enum status own_path(struct agent_memory *memory, struct agent_thread *thread, uint32_t *path) {
    TRY(array_reserve((void **)&thread->paths, &thread->path_capacity, thread->count + 1, sizeof thread->paths[0]));
    TRY(path_of_frames(memory, thread, thread->path_count, thread->paths, path));
    thread->path_count = thread->count;
    return STATUS_OK;
}

bool agent_memory_knows_start(const struct agent_memory *memory, uint64_t starter_id) {
    uint64_t path = 0;
    return !memory->is_on || starter_id == 0 || map_get(&memory->starts, starter_id, &path);
}

/* What a thread without Python frames does is charged to where it was started, and when that is not known to where the
 * main thread is. */
static enum status foreign_path(struct agent_memory *memory, const struct agent_thread *thread, uint32_t *path) {
    uint64_t start = 0;
    *path = 0;
    if (thread->starter_id != 0 && map_get(&memory->starts, thread->starter_id, &start)) {
        *path = (uint32_t)start;
        return enter_mark(memory, SAMPLE_FRAME_NATIVE_THREAD, path);
    }
    if (memory->main == NULL || memory->main->count == 0 || memory->main == thread)
        return enter_mark(memory, memory->main_had_frames ? SAMPLE_FRAME_SHUTDOWN : SAMPLE_FRAME_STARTUP, path);
    TRY(path_of_frames(memory, memory->main, 0, NULL, path));
    return enter_mark(memory, SAMPLE_FRAME_NATIVE_THREAD, path);
}

/* Of a record with frames. */
static enum status take_path(struct agent_memory *memory, struct agent_thread *thread,
                             const struct agent_reading *reading, const struct wire_record *record, uint32_t kept,
                             const struct wire_frame *frames, uint32_t count, uint32_t *path) {
    *path = 0;
    if ((record->flags & WIRE_SAMPLE_TORN) != 0)
        return enter_mark(memory, SAMPLE_FRAME_UNREADABLE, path);
    if ((record->flags & WIRE_SAMPLE_NO_PYTHON) != 0 && count == 0)
        return foreign_path(memory, thread, path);
    TRY(agent_thread_take_stack(thread, reading, kept, frames, count));
    if (thread->count == 0)
        return foreign_path(memory, thread, path);
    memory->main_had_frames |= thread == memory->main;
    return own_path(memory, thread, path);
}

/* ------------------------------------------------------------------------------------------------ records ----- */

static enum status sums_of(struct agent_allocations *allocations, uint32_t path, struct sample_allocation **sums) {
    uint64_t known = 0;
    if (!map_get(&allocations->index, path, &known)) {
        TRY(array_reserve((void **)&allocations->items, &allocations->capacity, allocations->count + 1,
                          sizeof allocations->items[0]));
        TRY(map_set(&allocations->index, path, allocations->count));
        known = allocations->count++;
        allocations->items[known] = (struct sample_allocation){.path = path};
    }
    *sums = &allocations->items[known];
    return STATUS_OK;
}

/* Of a sum of such samples: the square of its standard deviation, in KiB². A sample of `size_bytes` that stands for
 * `bytes` was taken with a chance of p = size/bytes; its variance is size²·(1 − p)/p, and its own square over p in
 * expectation. */
static uint64_t variance_of(uint64_t bytes, uint64_t size_bytes) {
    double spread = bytes > size_bytes ? (double)bytes * (double)(bytes - size_bytes) / (1 << 20) : 0;
    return spread < 1e18 ? (uint64_t)spread : (uint64_t)1e18;
}

/* No address space holds more. */
static bool is_plausible(uint64_t bytes) {
    return bytes < UINT64_C(1) << 57;
}

static enum status enqueue(struct agent_memory *memory, struct agent_heap_event *event) {
    /* A time that has not come yet is nonsense, and must not stay for ever. The pass may have begun long ago. */
    if (event->time_ns > memory->pass_ns + NS_PER_S && event->time_ns > clock_monotonic_ns())
        event->time_ns = memory->pass_ns;
    if (!is_plausible(event->footprint_bytes))
        event->footprint_bytes = 0;
    event->order = memory->order++;
    TRY(array_reserve((void **)&memory->queue, &memory->queue_capacity, memory->queue_count + 1,
                      sizeof memory->queue[0]));
    memory->queue[memory->queue_count++] = *event;
    return STATUS_OK;
}

static bool is_final(const struct wire_record *record) {
    return (record->flags & WIRE_MEMORY_FINALIZING) != 0;
}

static const struct wire_frame *frames_behind(const void *record, size_t record_bytes, size_t size_bytes,
                                              uint32_t count) {
    if ((uint64_t)count * sizeof(struct wire_frame) > size_bytes - record_bytes)
        return NULL;
    return (const struct wire_frame *)(const void *)((const uint8_t *)record + record_bytes);
}

static enum status take_alloc(struct agent_memory *memory, struct agent_thread *thread,
                              const struct agent_reading *reading, const struct wire_alloc *alloc, size_t size_bytes) {
    const struct wire_frame *frames = frames_behind(alloc, sizeof *alloc, size_bytes, alloc->frame_count);
    struct sample_allocation *sums = NULL;
    uint32_t path = 0;
    if (frames == NULL || !is_plausible(alloc->weight_bytes) || !is_plausible(alloc->weight_count) ||
        !is_plausible(alloc->grown_bytes))
        return STATUS_DAMAGED;
    TRY(take_path(memory, thread, reading, &alloc->record, alloc->kept, frames, alloc->frame_count, &path));
    TRY(sums_of(&thread->allocations, path, &sums));
    uint64_t variance = variance_of(alloc->weight_bytes, alloc->grown_bytes);
    sums->alloc_bytes += alloc->weight_bytes;
    sums->alloc_count += alloc->weight_count;
    sums->alloc_variance += variance;
    sums->python_bytes += alloc->domain == WIRE_DOMAIN_PYTHON ? alloc->weight_bytes : 0;
    return enqueue(memory, &(struct agent_heap_event){.time_ns = alloc->time_ns,
                                                      .id = alloc->id,
                                                      .footprint_bytes = alloc->footprint_bytes,
                                                      .size_bytes = alloc->size_bytes,
                                                      .bytes = alloc->weight_bytes,
                                                      .count = alloc->weight_count,
                                                      .variance = variance,
                                                      .thread = thread->sampled.native_id,
                                                      .allocated_bytes = alloc->allocated_bytes,
                                                      .path = path,
                                                      .kind = AGENT_HEAP_ALLOC,
                                                      .is_final = is_final(&alloc->record),
                                                      .has_program = alloc->frame_count + alloc->kept > 0});
}

static enum status take_copy(struct agent_memory *memory, struct agent_thread *thread,
                             const struct agent_reading *reading, const struct wire_copy *copy, size_t size_bytes) {
    const struct wire_frame *frames = frames_behind(copy, sizeof *copy, size_bytes, copy->frame_count);
    struct sample_allocation *sums = NULL;
    uint32_t path = 0;
    if (frames == NULL || !is_plausible(copy->weight_bytes))
        return STATUS_DAMAGED;
    TRY(take_path(memory, thread, reading, &copy->record, copy->kept, frames, copy->frame_count, &path));
    TRY(sums_of(&thread->allocations, path, &sums));
    sums->copy_bytes += copy->weight_bytes;
    sums->copy_variance += variance_of(copy->weight_bytes, copy->size_bytes);
    return STATUS_OK;
}

static enum status take_start(struct agent_memory *memory, struct agent_thread *thread,
                              const struct agent_reading *reading, const struct wire_start *start, size_t size_bytes) {
    const struct wire_frame *frames = frames_behind(start, sizeof *start, size_bytes, start->frame_count);
    uint32_t path = 0;
    if (frames == NULL)
        return STATUS_DAMAGED;
    TRY(take_path(memory, thread, reading, &start->record, start->kept, frames, start->frame_count, &path));
    /* Threads that live long are few. */
    if (memory->starts.count >= MAX_STARTS)
        map_clear(&memory->starts);
    return map_set(&memory->starts, start->id, path);
}

static enum status take_resize(struct agent_memory *memory, const struct wire_resize *resize) {
    return enqueue(memory, &(struct agent_heap_event){.time_ns = resize->time_ns,
                                                      .id = resize->id,
                                                      .size_bytes = resize->size_bytes,
                                                      .footprint_bytes = resize->footprint_bytes,
                                                      .kind = AGENT_HEAP_RESIZE,
                                                      .is_final = is_final(&resize->record)});
}

static enum status take_free(struct agent_memory *memory, const struct agent_thread *thread,
                             const struct wire_free *freed) {
    return enqueue(memory, &(struct agent_heap_event){.time_ns = freed->time_ns,
                                                      .id = freed->id,
                                                      .footprint_bytes = freed->footprint_bytes,
                                                      .thread = thread->sampled.native_id,
                                                      .allocated_bytes = freed->allocated_bytes,
                                                      .kind = AGENT_HEAP_FREE,
                                                      .is_final = is_final(&freed->record)});
}

static enum status take_site(struct agent_memory *memory, struct agent_thread *thread,
                             const struct agent_reading *reading, const struct wire_site *site, size_t size_bytes) {
    const struct wire_frame *frames = frames_behind(site, sizeof *site, size_bytes, site->frame_count);
    uint32_t path = 0;
    if (frames == NULL)
        return STATUS_DAMAGED;
    TRY(take_path(memory, thread, reading, &site->record, site->kept, frames, site->frame_count, &path));
    return agent_exact_define(&memory->exact, site->site, path);
}

static enum status take_counts(struct agent_memory *memory, struct agent_thread *thread,
                               const struct wire_counts *counts) {
    struct sample_allocation *sums = NULL;
    uint32_t path = 0;
    if (!is_plausible(counts->alloc_bytes) || !is_plausible(counts->alloc_count) || !is_plausible(counts->python_bytes))
        return STATUS_DAMAGED;
    TRY(agent_exact_count(&memory->exact, counts));
    if (counts->alloc_bytes == 0)
        return STATUS_OK;
    /* A site at which the thread allocates was told in its own ring, or in that of one that had the slot before. */
    if (!agent_exact_path(&memory->exact, counts->site, &path))
        return STATUS_DAMAGED;
    TRY(sums_of(&thread->allocations, path, &sums));
    sums->alloc_bytes += counts->alloc_bytes;
    sums->alloc_count += counts->alloc_count * COUNT_UNIT;
    sums->python_bytes += counts->python_bytes;
    return STATUS_OK;
}

enum status agent_memory_take(struct agent_memory *memory, struct agent_thread *thread,
                              const struct agent_reading *reading, const struct wire_record *record,
                              size_t size_bytes) {
    if (!memory->is_on)
        return STATUS_OK;
    if (record->type == WIRE_ALLOC && size_bytes >= sizeof(struct wire_alloc))
        return take_alloc(memory, thread, reading, (const struct wire_alloc *)(const void *)record, size_bytes);
    if (record->type == WIRE_COPY && size_bytes >= sizeof(struct wire_copy))
        return take_copy(memory, thread, reading, (const struct wire_copy *)(const void *)record, size_bytes);
    if (record->type == WIRE_START && size_bytes >= sizeof(struct wire_start))
        return take_start(memory, thread, reading, (const struct wire_start *)(const void *)record, size_bytes);
    if (record->type == WIRE_RESIZE && size_bytes >= sizeof(struct wire_resize))
        return take_resize(memory, (const struct wire_resize *)(const void *)record);
    if (record->type == WIRE_FREE && size_bytes >= sizeof(struct wire_free))
        return take_free(memory, thread, (const struct wire_free *)(const void *)record);
    if (record->type == WIRE_SITE && size_bytes >= sizeof(struct wire_site))
        return take_site(memory, thread, reading, (const struct wire_site *)(const void *)record, size_bytes);
    if (record->type == WIRE_COUNTS && size_bytes >= sizeof(struct wire_counts))
        return take_counts(memory, thread, (const struct wire_counts *)(const void *)record);
    return STATUS_DAMAGED;
}

/* ------------------------------------------------------------------------------------------------ settling ---- */

void agent_memory_begin(struct agent_memory *memory, uint64_t now_ns) {
    memory->pass_ns = now_ns;
}

enum status agent_memory_charge_lost(struct agent_memory *memory, const struct wire_region *header) {
    struct sample_allocation *sums = NULL;
    uint32_t path = 0;
    memory->lost_records = atomic_load_explicit(&header->lost_memory_records, memory_order_relaxed);
    memory->lost_bytes = atomic_load_explicit(&header->lost_memory_bytes, memory_order_relaxed);
    if (memory->main == NULL || !is_plausible(memory->lost_bytes) || memory->lost_bytes <= memory->lost_told_bytes)
        return STATUS_OK;
    TRY(enter_mark(memory, SAMPLE_FRAME_LOST, &path));
    TRY(sums_of(&memory->main->allocations, path, &sums));
    sums->alloc_bytes += memory->lost_bytes - memory->lost_told_bytes;
    memory->lost_told_bytes = memory->lost_bytes;
    return STATUS_OK;
}

/* The footprint as the process itself has it, which is nearer than what its threads know; and the most that it was,
 * at its own moment. */
static enum status look_at_header(struct agent_memory *memory, const struct wire_region *header) {
    int64_t signed_bytes = atomic_load_explicit(&header->footprint_bytes, memory_order_relaxed);
    uint64_t footprint_bytes = signed_bytes > 0 ? (uint64_t)signed_bytes : 0;
    uint64_t peak_bytes = atomic_load_explicit(&header->peak_bytes, memory_order_relaxed);
    uint64_t peak_ns = atomic_load_explicit(&header->peak_ns, memory_order_relaxed);
    memory->peak_id = atomic_load_explicit(&header->peak_id, memory_order_relaxed);
    TRY(agent_memory_charge_lost(memory, header));
    if (is_plausible(peak_bytes) && peak_bytes > memory->peak_bytes) {
        memory->peak_bytes = peak_bytes;
        memory->peak_ns = peak_ns;
        TRY(enqueue(memory, &(struct agent_heap_event){
                                .time_ns = peak_ns, .footprint_bytes = peak_bytes, .kind = AGENT_HEAP_FOOTPRINT}));
    }
    if (!is_plausible(footprint_bytes) || footprint_bytes == memory->footprint_bytes)
        return STATUS_OK;
    memory->footprint_bytes = footprint_bytes;
    /* What it was when the pass began may be much less, while the program runs on. */
    return enqueue(memory, &(struct agent_heap_event){.time_ns = memory->pass_ns,
                                                      .footprint_bytes = footprint_bytes,
                                                      .kind = AGENT_HEAP_LOOK});
}

void agent_memory_look(struct agent_memory *memory, const struct process *process) {
    uint64_t resident_bytes = 0;
    if (!memory->is_on || process == NULL || memory->pass_ns - memory->resident_ns < RESIDENT_PERIOD_NS)
        return;
    memory->resident_ns = memory->pass_ns;
    if (process_read_resident(process, &resident_bytes) == STATUS_OK && resident_bytes > memory->resident_bytes)
        memory->resident_bytes = resident_bytes;
}

static int compare_events(const void *left, const void *right) {
    const struct agent_heap_event *a = left;
    const struct agent_heap_event *b = right;
    if (a->time_ns != b->time_ns)
        return a->time_ns < b->time_ns ? -1 : 1;
    return (a->order > b->order) - (a->order < b->order);
}

/* What is no more than a flicker is no point of the timeline. */
static enum status note_footprint(struct agent_memory *memory, const struct agent_heap_event *event) {
    uint64_t now_bytes = event->footprint_bytes, before_bytes = memory->noted_bytes;
    uint64_t step_bytes = now_bytes > before_bytes ? now_bytes - before_bytes : before_bytes - now_bytes;
    if (now_bytes == 0 || (step_bytes < now_bytes / FLICKER_SHARE && now_bytes < memory->heap.peak_bytes))
        return STATUS_OK;
    memory->noted_bytes = now_bytes;
    return series_add(&memory->footprint, event->time_ns, now_bytes);
}

enum status agent_memory_settle(struct agent_memory *memory, const struct wire_region *header, bool everything) {
    size_t done = 0;
    if (!memory->is_on)
        return STATUS_OK;
    TRY(look_at_header(memory, header));
    if (memory->queue_count > 1)
        qsort(memory->queue, memory->queue_count, sizeof memory->queue[0], compare_events);
    everything |= memory->queue_count > MAX_QUEUE;
    for (; done < memory->queue_count; done++) {
        const struct agent_heap_event *event = &memory->queue[done];
        if (!everything && event->time_ns >= memory->pass_ns)
            break;
        TRY(agent_heap_take(&memory->heap, event));
        TRY(note_footprint(memory, event));
    }
    if (done == 0)
        return STATUS_OK;
    memory->queue_count -= done;
    memmove(memory->queue, memory->queue + done, memory->queue_count * sizeof memory->queue[0]);
    return STATUS_OK;
}

/* ------------------------------------------------------------------------------------------------ telling ----- */

bool agent_memory_is_due(const struct agent_memory *memory) {
    return memory->is_on && memory->pass_ns >= memory->due_ns;
}

enum status agent_memory_tell_thread(struct agent_memory *memory, struct agent_thread *thread,
                                     struct sample_sink *sink) {
    struct agent_allocations *allocations = &thread->allocations;
    enum status status = STATUS_OK;
    for (size_t i = 0; i < allocations->count; i++) {
        uint64_t count = allocations->items[i].alloc_count + memory->count_carry;
        allocations->items[i].alloc_count = count / COUNT_UNIT;
        memory->count_carry = count % COUNT_UNIT;
    }
    if (allocations->count > 0 && sink->allocations != NULL)
        status = sink->allocations(sink, &thread->sampled, &memory->sites.told, allocations->items, allocations->count);
    allocations->count = 0;
    map_clear(&allocations->index);
    return status;
}

static bool differs(const struct sample_held *one, const struct sample_held *other) {
    return memcmp(one, other, sizeof *one) != 0;
}

static enum status collect_change(struct agent_memory *memory, uint32_t path, struct sample_held *told,
                                  const struct sample_held *held, size_t *count) {
    if (!differs(held, told))
        return STATUS_OK;
    TRY(array_reserve((void **)&memory->changes, &memory->change_capacity, *count + 1, sizeof memory->changes[0]));
    memory->changes[(*count)++] = (struct sample_change){.path = path, .before = *told, .now = *held};
    *told = *held;
    return STATUS_OK;
}

static enum status collect_exact_changes(struct agent_memory *memory, size_t *count) {
    struct agent_exact *exact = &memory->exact;
    agent_exact_sum_up(exact, memory->peak_id);
    for (size_t i = 0; i < exact->site_count; i++) {
        struct agent_exact_site *site = &exact->sites[i];
        const struct sample_held held = agent_exact_held(site);
        if (site->is_known)
            TRY(collect_change(memory, site->path, &site->told, &held, count));
    }
    return STATUS_OK;
}

static enum status collect_changes(struct agent_memory *memory, size_t *count) {
    struct agent_heap *heap = &memory->heap;
    for (size_t i = 0; i < heap->site_count; i++) {
        struct agent_heap_site *site = &heap->sites[i];
        const struct sample_held held = agent_heap_held(heap, site);
        TRY(collect_change(memory, site->path, &site->told, &held, count));
    }
    return collect_exact_changes(memory, count);
}

static void set_due(struct agent_memory *memory, size_t change_count) {
    uint64_t now_ns = memory->pass_ns;
    uint64_t period_ns = (now_ns > memory->start_ns ? now_ns - memory->start_ns : 0) / TELL_SHARE;
    uint64_t told_bytes = change_count * CHANGE_BYTES + memory->footprint.count * POINT_BYTES;
    uint64_t budget_ns = told_bytes * NS_PER_S / BYTES_PER_S;
    period_ns = period_ns < SHORTEST_PERIOD_NS ? SHORTEST_PERIOD_NS : period_ns;
    period_ns = period_ns < budget_ns ? budget_ns : period_ns;
    memory->due_ns = now_ns + (period_ns > LONGEST_PERIOD_NS ? LONGEST_PERIOD_NS : period_ns);
}

enum status agent_memory_tell(struct agent_memory *memory, struct sampled_process *process, struct sample_sink *sink) {
    size_t count = 0;
    enum status status = STATUS_OK;
    TRY(collect_changes(memory, &count));
    series_reduce(&memory->footprint);
    struct sample_memory told = {
        .process = process,
        .time_ns = memory->pass_ns,
        .sites = &memory->sites.told,
        .changes = memory->changes,
        .change_count = count,
        .footprint = memory->footprint.points,
        .footprint_count = memory->footprint.count,
        .footprint_bytes = memory->footprint_bytes,
        .peak_bytes = memory->peak_bytes,
        .peak_ns = memory->peak_ns,
        .inherited_bytes = memory->inherited_bytes,
        .stride_bytes = memory->stride_bytes,
        .lost_records = memory->lost_records,
        .resident_bytes = memory->resident_bytes,
    };
    if (sink->memory != NULL && (count > 0 || told.footprint_count > 0))
        status = sink->memory(sink, &told);
    set_due(memory, count);
    series_clear(&memory->footprint);
    return status;
}
