/* The bytes at the high-water mark are kept in one pass: each new maximum of the footprint raises the heap's peak_id,
 * and a site saves its live values before they change for the first time under a new one. So an event costs the same
 * however many sites there are, and a maximum costs nothing. */
#include "sampler/agent_heap.h"

#include "base/array.h"

#include <stdlib.h>

enum { MAX_PARTS = 1 << 22, MAX_SITES = 1 << 18, COUNT_UNIT = 1024 };

void agent_heap_release(struct agent_heap *heap) {
    map_release(&heap->live);
    free(heap->parts);
    free(heap->sites);
    free(heap->site_of_path);
}

static enum status add_site(struct agent_heap *heap, uint32_t path, uint32_t *index) {
    if (heap->site_count == MAX_SITES)
        return STATUS_LIMIT;
    TRY(array_reserve((void **)&heap->sites, &heap->site_capacity, heap->site_count + 1, sizeof heap->sites[0]));
    *index = (uint32_t)heap->site_count++;
    heap->sites[*index] = (struct agent_heap_site){.path = path};
    heap->site_of_path[path] = *index + 1;
    return STATUS_OK;
}

static enum status find_site(struct agent_heap *heap, uint32_t path, uint32_t *index) {
    size_t known = heap->path_capacity;
    TRY(array_reserve((void **)&heap->site_of_path, &heap->path_capacity, (size_t)path + 1,
                      sizeof heap->site_of_path[0]));
    for (; known < heap->path_capacity; known++)
        heap->site_of_path[known] = 0;
    if (heap->site_of_path[path] == 0)
        return add_site(heap, path, index);
    *index = heap->site_of_path[path] - 1;
    return STATUS_OK;
}

static enum status add_part(struct agent_heap *heap, uint32_t *index) {
    if (heap->unused_part != 0) {
        *index = heap->unused_part - 1;
        heap->unused_part = heap->parts[*index].next;
        return STATUS_OK;
    }
    if (heap->part_count == MAX_PARTS)
        return STATUS_LIMIT;
    TRY(array_reserve((void **)&heap->parts, &heap->part_capacity, heap->part_count + 1, sizeof heap->parts[0]));
    *index = (uint32_t)heap->part_count++;
    return STATUS_OK;
}

static void give_part(struct agent_heap *heap, uint32_t index) {
    heap->parts[index] = (struct agent_part){.next = heap->unused_part};
    heap->unused_part = index + 1;
}

/* Before a site's live values change. */
static struct agent_heap_site *save_site(const struct agent_heap *heap, uint32_t index) {
    struct agent_heap_site *site = &heap->sites[index];
    if (site->peak_id == heap->peak_id)
        return site;
    site->peak_id = heap->peak_id;
    site->saved_bytes = site->live_bytes;
    site->saved_variance = site->live_variance;
    return site;
}

/* A maximum that is but noticed while the interpreter tears itself down, of pages that were touched before: what the
 * program had kept to its end was there. */
static void save_final(struct agent_heap *heap) {
    for (size_t i = 0; i < heap->site_count; i++) {
        struct agent_heap_site *site = &heap->sites[i];
        site->peak_id = heap->peak_id;
        site->saved_bytes = site->final_bytes;
        site->saved_variance = site->final_variance;
    }
}

static void note_footprint(struct agent_heap *heap, const struct agent_heap_event *event) {
    /* Of equal maxima the last one counts: the process may have noted its peak just before it told of what made it. */
    bool is_ours = event->kind != AGENT_HEAP_FOOTPRINT && event->footprint_bytes == heap->peak_bytes;
    if (event->kind == AGENT_HEAP_LOOK || event->footprint_bytes == 0 ||
        (event->footprint_bytes <= heap->peak_bytes && !is_ours))
        return;
    heap->peak_bytes = event->footprint_bytes;
    heap->peak_ns = event->time_ns;
    heap->peak_id++;
    if (heap->is_final && event->kind == AGENT_HEAP_FOOTPRINT)
        save_final(heap);
}

static bool is_stray(const struct agent_heap *heap, uint64_t id) {
    return heap->strays[id % AGENT_STRAYS] == id && id != 0;
}

static enum status insert_part(struct agent_heap *heap, const struct agent_heap_event *event) {
    uint64_t before = 0;
    uint32_t site_index = 0, part = 0;
    bool has_before = map_get(&heap->live, event->id, &before);
    TRY(find_site(heap, event->path, &site_index));
    TRY(add_part(heap, &part));
    enum status status = map_set(&heap->live, event->id, part);
    if (status != STATUS_OK) {
        give_part(heap, part);
        return status;
    }
    heap->parts[part] = (struct agent_part){.id = event->id,
                                            .bytes = event->bytes,
                                            .count = event->count,
                                            .variance = event->variance,
                                            .size_bytes = event->size_bytes,
                                            .thread = event->thread,
                                            .allocated_bytes = event->allocated_bytes,
                                            .site = site_index,
                                            .next = has_before ? (uint32_t)before + 1 : 0};
    struct agent_heap_site *site = save_site(heap, site_index);
    /* Told late, after the maximum at which it was there. */
    if (event->time_ns < heap->peak_ns) {
        site->saved_bytes += event->bytes;
        site->saved_variance += event->variance;
    }
    site->live_bytes += event->bytes;
    site->live_count += event->count;
    site->live_variance += event->variance;
    return STATUS_OK;
}

static enum status take_alloc(struct agent_heap *heap, const struct agent_heap_event *event) {
    if (is_stray(heap, event->id))
        return STATUS_OK;
    enum status status = insert_part(heap, event);
    if (status != STATUS_LIMIT)
        return status;
    heap->refused++;
    return STATUS_OK;
}

static void take_free(struct agent_heap *heap, const struct agent_heap_event *event) {
    uint64_t last = 0;
    heap->strays[event->id % AGENT_STRAYS] = event->id;
    if (!map_get(&heap->live, event->id, &last))
        return;
    (void)map_remove(&heap->live, event->id);
    const struct agent_part *newest = &heap->parts[last];
    bool is_temporary =
        newest->next == 0 && newest->thread == event->thread && newest->allocated_bytes == event->allocated_bytes;
    for (uint32_t next = (uint32_t)last + 1; next != 0;) {
        uint32_t index = next - 1;
        const struct agent_part *part = &heap->parts[index];
        struct agent_heap_site *site = save_site(heap, part->site);
        site->live_bytes -= part->bytes;
        site->live_count -= part->count;
        site->live_variance -= part->variance;
        site->temporary_bytes += is_temporary ? part->bytes : 0;
        next = part->next;
        give_part(heap, index);
    }
}

/* What is left of an amount when the block shrinks; none of them is beyond what a double holds well enough. */
static uint64_t shrink(uint64_t amount, double ratio) {
    uint64_t left = (uint64_t)((double)amount * ratio);
    return left < amount ? left : amount;
}

static void take_resize(struct agent_heap *heap, const struct agent_heap_event *event) {
    uint64_t last = 0;
    if (!map_get(&heap->live, event->id, &last) || heap->parts[last].size_bytes <= event->size_bytes)
        return;
    double ratio = (double)event->size_bytes / (double)heap->parts[last].size_bytes;
    heap->parts[last].size_bytes = event->size_bytes;
    for (uint32_t next = (uint32_t)last + 1; next != 0; next = heap->parts[next - 1].next) {
        struct agent_part *part = &heap->parts[next - 1];
        struct agent_heap_site *site = save_site(heap, part->site);
        uint64_t bytes = shrink(part->bytes, ratio), variance = shrink(part->variance, ratio * ratio);
        site->live_bytes -= part->bytes - bytes;
        site->live_variance -= part->variance - variance;
        part->bytes = bytes;
        part->variance = variance;
    }
}

/* What the interpreter gives back while it tears itself down is what the program has kept to its end. A program that
 * embeds it may start it anew; then what is live is what is live. */
static void note_end(struct agent_heap *heap, const struct agent_heap_event *event) {
    if (heap->is_final && !event->is_final && event->has_program)
        heap->is_final = false;
    if (heap->is_final || !event->is_final)
        return;
    heap->is_final = true;
    for (size_t i = 0; i < heap->site_count; i++) {
        struct agent_heap_site *site = &heap->sites[i];
        site->final_bytes = site->live_bytes;
        site->final_count = site->live_count;
        site->final_variance = site->live_variance;
    }
}

enum status agent_heap_take(struct agent_heap *heap, const struct agent_heap_event *event) {
    note_end(heap, event);
    if (event->kind == AGENT_HEAP_ALLOC)
        TRY(take_alloc(heap, event));
    note_footprint(heap, event);
    if (event->kind == AGENT_HEAP_FREE)
        take_free(heap, event);
    else if (event->kind == AGENT_HEAP_RESIZE)
        take_resize(heap, event);
    return STATUS_OK;
}

static uint64_t whole(uint64_t count) {
    return (count + COUNT_UNIT / 2) / COUNT_UNIT;
}

struct sample_held agent_heap_held(const struct agent_heap *heap, const struct agent_heap_site *site) {
    bool is_saved = site->peak_id == heap->peak_id;
    return (struct sample_held){
        .live_bytes = heap->is_final ? site->final_bytes : site->live_bytes,
        .live_count = whole(heap->is_final ? site->final_count : site->live_count),
        .live_variance = heap->is_final ? site->final_variance : site->live_variance,
        .peak_bytes = is_saved ? site->saved_bytes : site->live_bytes,
        .peak_variance = is_saved ? site->saved_variance : site->live_variance,
        .temporary_bytes = site->temporary_bytes,
    };
}
