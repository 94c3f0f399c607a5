#include "profile/held.h"

#include "profile/builder.h"

#include <stdlib.h>

enum { MAX_PATHS = 1 << 17, ALL_POINTS = 1 << 18, MIN_POINTS = 16, MAX_POINTS = 200, COUNT_POINTS = 16 };
enum { SHORT_NS = 100000000, USUAL_TICKS = 25 };

void held_watch_release(struct held_watch *watch) {
    for (size_t i = 0; i < watch->path_count; i++) {
        series_release(&watch->paths[i].bytes);
        series_release(&watch->paths[i].counts);
    }
    free(watch->paths);
    free(watch->spans);
    free(watch->changed);
    digest_map_release(&watch->index);
    *watch = (struct held_watch){0};
}

/* NULL when there are too many. */
static enum status find_path(struct held_watch *watch, uint32_t process, uint32_t stack, struct held_path **path) {
    struct digest key = digest_of_pair(process, stack);
    uint32_t known = digest_map_get(&watch->index, key);
    *path = NULL;
    if (known == 0 && watch->path_count == MAX_PATHS)
        return STATUS_OK;
    if (known == 0) {
        TRY(builder_reserve((void **)&watch->paths, watch->path_count, &watch->path_capacity, sizeof watch->paths[0]));
        TRY(digest_map_set(&watch->index, key, (uint32_t)watch->path_count + 1));
        watch->paths[watch->path_count] = (struct held_path){.process = process, .stack = stack};
        known = (uint32_t)++watch->path_count;
    }
    *path = &watch->paths[known - 1];
    return STATUS_OK;
}

/* In whatever order they come, only the sum has to be a number. */
static void add(int64_t *sum, int64_t amount) {
    *sum = (int64_t)((uint64_t)*sum + (uint64_t)amount);
}

static enum status mark_changed(struct held_watch *watch, struct held_path *path) {
    if (path->is_changed)
        return STATUS_OK;
    TRY(builder_reserve((void **)&watch->changed, watch->changed_count, &watch->changed_capacity,
                        sizeof watch->changed[0]));
    watch->changed[watch->changed_count++] = (uint32_t)(path - watch->paths);
    path->is_changed = true;
    return STATUS_OK;
}

enum status held_watch_forget(struct held_watch *watch, uint32_t process) {
    for (size_t i = 0; i < watch->path_count; i++) {
        struct held_path *path = &watch->paths[i];
        if (path->process != process)
            continue;
        TRY(mark_changed(watch, path));
        path->now_bytes = path->now_count = path->now_variance = 0;
    }
    return STATUS_OK;
}

enum status held_watch_change(struct held_watch *watch, uint32_t process, uint32_t stack, enum measure measure,
                              int64_t amount) {
    struct held_path *path = NULL;
    if (measure != MEASURE_LIVE_BYTES && measure != MEASURE_LIVE_COUNT && measure != MEASURE_LIVE_VARIANCE)
        return STATUS_OK;
    TRY(find_path(watch, process, stack, &path));
    if (path == NULL)
        return STATUS_OK;
    TRY(mark_changed(watch, path));
    add(measure == MEASURE_LIVE_BYTES   ? &path->now_bytes
        : measure == MEASURE_LIVE_COUNT ? &path->now_count
                                        : &path->now_variance,
        amount);
    return STATUS_OK;
}

/* Two points: what it was until then, and what it is. */
static enum status note(struct series *series, size_t limit, uint64_t before_ns, uint64_t now_ns, int64_t now) {
    uint64_t value = now > 0 ? (uint64_t)now : 0;
    const struct series_point *last = series->count > 0 ? &series->points[series->count - 1] : NULL;
    uint64_t before = last != NULL ? last->value : 0;
    series->limit = limit;
    if (value == before)
        return STATUS_OK;
    if (last == NULL || last->time_ns < before_ns)
        TRY(series_add(series, before_ns, before));
    return series_add(series, now_ns, value);
}

static enum status note_path(struct held_watch *watch, struct held_path *path, uint64_t before_ns, uint64_t now_ns) {
    size_t limit = ALL_POINTS / watch->path_count;
    limit = limit < MIN_POINTS ? MIN_POINTS : limit > MAX_POINTS ? MAX_POINTS : limit;
    TRY(note(&path->counts, COUNT_POINTS, before_ns, now_ns, path->now_count));
    return note(&path->bytes, limit, before_ns, now_ns, path->now_bytes);
}

/* Until when it was as at the tick before. While nothing changes there are no ticks. But there are none either while
 * strobe itself has to wait; then the footprint has its points all the same. */
static uint64_t begin_of_step(const struct held_span *span, uint64_t first_point_ns, uint64_t time_ns) {
    uint64_t age_ns = time_ns > span->first_ns ? time_ns - span->first_ns : 0;
    uint64_t longest_ns = age_ns / USUAL_TICKS > SHORT_NS ? age_ns / USUAL_TICKS : SHORT_NS;
    if (span->last_ns + longest_ns >= time_ns)
        return span->last_ns;
    uint64_t begin_ns = first_point_ns < time_ns - longest_ns ? first_point_ns : time_ns - longest_ns;
    return begin_ns > span->last_ns ? begin_ns : span->last_ns;
}

enum status held_watch_tick(struct held_watch *watch, uint32_t process, uint64_t first_point_ns, uint64_t time_ns) {
    while (watch->span_count <= process) {
        TRY(builder_reserve((void **)&watch->spans, watch->span_count, &watch->span_capacity, sizeof watch->spans[0]));
        watch->spans[watch->span_count++] = (struct held_span){.has_begun = false};
    }
    struct held_span *span = &watch->spans[process];
    if (!span->has_begun)
        *span = (struct held_span){true, time_ns, time_ns, time_ns};
    uint64_t before_ns = begin_of_step(span, first_point_ns, time_ns);
    size_t kept = 0;
    for (size_t i = 0; i < watch->changed_count; i++) {
        struct held_path *path = &watch->paths[watch->changed[i]];
        if (path->process != process) {
            watch->changed[kept++] = watch->changed[i];
            continue;
        }
        path->is_changed = false;
        span->last_change_ns = time_ns;
        TRY(note_path(watch, path, before_ns, time_ns));
    }
    watch->changed_count = kept;
    span->last_ns = time_ns > span->last_ns ? time_ns : span->last_ns;
    return STATUS_OK;
}
