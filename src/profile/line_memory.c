#include "profile/line_memory.h"

#include "profile/builder.h"

#include <stdlib.h>
#include <string.h>

/* A line in a process, with the paths whose memory is charged to it. */
struct line {
    const struct profile_frame *frame;
    uint32_t process;
    uint32_t first_path; /* + 1 */
    uint64_t most_bytes; /* at any of the moments */
};

struct lines {
    const struct profile *profile;
    const struct held_watch *watch;
    struct line *items;
    size_t count, capacity;
    uint32_t *next_path;     /* path -> the line's next one + 1 */
    struct digest_map index; /* -> item + 1 */
};

static enum status find_line(struct lines *lines, const struct profile_frame *frame, uint32_t process,
                             struct line **line) {
    const uint64_t fields[] = {(uintptr_t)frame->file, (uint32_t)frame->line, process};
    struct digest key = digest_of(fields, sizeof fields);
    uint32_t known = digest_map_get(&lines->index, key);
    if (known == 0) {
        TRY(builder_reserve((void **)&lines->items, lines->count, &lines->capacity, sizeof lines->items[0]));
        TRY(digest_map_set(&lines->index, key, (uint32_t)lines->count + 1));
        lines->items[lines->count] = (struct line){.frame = frame, .process = process};
        known = (uint32_t)++lines->count;
    }
    *line = &lines->items[known - 1];
    return STATUS_OK;
}

static enum status group_paths(struct lines *lines, const uint32_t *charged) {
    const struct profile *profile = lines->profile;
    lines->next_path = calloc(lines->watch->path_count + 1, sizeof lines->next_path[0]);
    if (lines->next_path == NULL)
        return STATUS_FAILED;
    for (uint32_t p = 0; p < lines->watch->path_count; p++) {
        const struct held_path *path = &lines->watch->paths[p];
        struct line *line = NULL;
        if (path->process >= lines->watch->span_count || charged[path->stack] == 0)
            continue;
        TRY(find_line(lines, &profile->frames[profile->stacks[charged[path->stack]].frame], path->process, &line));
        if (line == NULL)
            continue;
        lines->next_path[p] = line->first_path;
        line->first_path = p + 1;
    }
    return STATUS_OK;
}

/* ------------------------------------------------------------------------------------------------ leaks ------- */

/* A line's paths at each of the moments. */
struct moments {
    uint64_t times_ns[LEAK_MOMENTS], bytes[LEAK_MOMENTS];
};

static uint64_t positive(int64_t amount) {
    return amount > 0 ? (uint64_t)amount : 0;
}

/* Of the program: what the interpreter takes to tear itself down, which may be long, is none of its time. */
static uint64_t find_end(const struct profile *profile, uint32_t process, const struct held_span *span) {
    uint64_t end_ns = profile->processes[process].python_end_ns;
    end_ns = end_ns > span->last_change_ns ? end_ns : span->last_change_ns;
    end_ns = end_ns < span->last_ns ? end_ns : span->last_ns;
    return end_ns > span->first_ns ? end_ns : span->first_ns;
}

static void look_at_moments(const struct lines *lines, struct line *line, struct moments *moments) {
    const struct held_span *span = &lines->watch->spans[line->process];
    uint64_t end_ns = find_end(lines->profile, line->process, span);
    memset(moments->bytes, 0, sizeof moments->bytes);
    for (size_t i = 0; i + 1 < LEAK_MOMENTS; i++)
        moments->times_ns[i] =
            span->first_ns + (uint64_t)((double)(end_ns - span->first_ns) * (double)i / (LEAK_MOMENTS - 1));
    moments->times_ns[LEAK_MOMENTS - 1] = end_ns;
    for (uint32_t p = line->first_path; p != 0; p = lines->next_path[p - 1])
        for (size_t i = 0; i < LEAK_MOMENTS; i++)
            moments->bytes[i] = saturating_add(
                moments->bytes[i], series_value_at(&lines->watch->paths[p - 1].bytes, moments->times_ns[i]));
    for (size_t i = 0; i < LEAK_MOMENTS; i++)
        line->most_bytes = moments->bytes[i] > line->most_bytes ? moments->bytes[i] : line->most_bytes;
}

/* What was live is more than what the process ended with: the interpreter has given it back as it tore itself down. */
static bool is_script(const struct profile *profile, const struct line *line, uint64_t live_bytes) {
    return profile->processes[line->process].memory.footprint_bytes < live_bytes &&
           strcmp(line->frame->function, "<module>") == 0;
}

static enum status judge_line(const struct lines *lines, const struct line *line, const struct moments *moments,
                              struct line_memory *memory) {
    struct leak leak = {.file = line->frame->file,
                        .function = line->frame->qualname,
                        .line = line->frame->line,
                        .process = line->process};
    struct leak_evidence evidence = {.times_ns = moments->times_ns, .bytes = moments->bytes, .count = LEAK_MOMENTS};
    for (uint32_t p = line->first_path; p != 0; p = lines->next_path[p - 1]) {
        const struct held_path *path = &lines->watch->paths[p - 1];
        evidence.variance = saturating_add(evidence.variance, positive(path->now_variance));
        evidence.survivors = saturating_add(evidence.survivors, positive(path->now_count));
        evidence.survivors_mid =
            saturating_add(evidence.survivors_mid, series_value_at(&path->counts, moments->times_ns[LEAK_MOMENTS / 2]));
        leak.live_bytes = saturating_add(leak.live_bytes, positive(path->now_bytes));
    }
    leak.survivors = evidence.survivors;
    evidence.is_script = is_script(lines->profile, line, leak.live_bytes);
    if (!leak_judge(&evidence, &leak.verdict))
        return STATUS_OK;
    TRY(builder_reserve((void **)&memory->leaks, memory->leak_count, &memory->leak_capacity, sizeof memory->leaks[0]));
    memory->leaks[memory->leak_count++] = leak;
    return STATUS_OK;
}

static int compare_places(const char *left_file, int32_t left_line, const char *right_file, int32_t right_line) {
    int order = strcmp(left_file, right_file);
    return order != 0 ? order : (left_line > right_line) - (left_line < right_line);
}

static int compare_leaks(const void *left, const void *right) {
    const struct leak *a = left, *b = right;
    int order = (a->verdict.bytes_per_s < b->verdict.bytes_per_s) - (a->verdict.bytes_per_s > b->verdict.bytes_per_s);
    return order != 0 ? order : compare_places(a->file, a->line, b->file, b->line);
}

/* ------------------------------------------------------------------------------------------------ timelines --- */

/* Where the sum of a line's paths turns: from then on it grows by so much more for each nanosecond; and what it jumps
 * by. */
struct turn {
    uint64_t time_ns;
    double slope, jump;
};

static int compare_turns(const void *left, const void *right) {
    const struct turn *a = left, *b = right;
    return (a->time_ns > b->time_ns) - (a->time_ns < b->time_ns);
}

struct turns {
    struct turn *items;
    size_t count, capacity;
};

static enum status add_turn(struct turns *turns, uint64_t time_ns, double slope, double jump) {
    TRY(builder_reserve((void **)&turns->items, turns->count, &turns->capacity, sizeof turns->items[0]));
    turns->items[turns->count++] = (struct turn){time_ns, slope, jump};
    return STATUS_OK;
}

static enum status add_segment(struct turns *turns, const struct series_point *from, const struct series_point *to) {
    double rise = (double)to->value - (double)from->value;
    if (to->time_ns == from->time_ns)
        return add_turn(turns, to->time_ns, 0, rise);
    double slope = rise / (double)(to->time_ns - from->time_ns);
    TRY(add_turn(turns, from->time_ns, slope, 0));
    return add_turn(turns, to->time_ns, -slope, 0);
}

static enum status collect_turns(const struct lines *lines, const struct line *line, struct turns *turns) {
    for (uint32_t p = line->first_path; p != 0; p = lines->next_path[p - 1]) {
        const struct series *bytes = &lines->watch->paths[p - 1].bytes;
        if (bytes->count > 0)
            TRY(add_turn(turns, bytes->points[0].time_ns, 0, (double)bytes->points[0].value));
        for (size_t i = 1; i < bytes->count; i++)
            TRY(add_segment(turns, &bytes->points[i - 1], &bytes->points[i]));
    }
    if (turns->count > 1)
        qsort(turns->items, turns->count, sizeof turns->items[0], compare_turns);
    return STATUS_OK;
}

/* What many slopes add up to is not exact. */
static uint64_t rounded(double bytes) {
    return bytes < 1 ? 0 : bytes < 0x1p63 ? (uint64_t)(bytes + 0.5) : UINT64_MAX;
}

static enum status put_turns(const struct turns *turns, struct series *timeline) {
    double sum = 0, slope = 0;
    for (size_t i = 0; i < turns->count; i++) {
        const struct turn *turn = &turns->items[i];
        bool is_later = i > 0 && turn->time_ns > turn[-1].time_ns;
        if (is_later) {
            sum += slope * (double)(turn->time_ns - turn[-1].time_ns);
            TRY(series_add(timeline, turn->time_ns, rounded(sum)));
        }
        sum += turn->jump;
        slope += turn->slope;
        if (turn->jump != 0 || i == 0)
            TRY(series_add(timeline, turn->time_ns, rounded(sum)));
    }
    return STATUS_OK;
}

/* The sum of its paths', and that it stayed what it was to the end. */
static enum status make_timeline(const struct lines *lines, const struct line *line, struct series *timeline) {
    struct turns turns = {0};
    uint64_t last = 0;
    for (uint32_t p = line->first_path; p != 0; p = lines->next_path[p - 1])
        last = saturating_add(last, positive(lines->watch->paths[p - 1].now_bytes));
    timeline->limit = HELD_LINE_POINTS;
    enum status status = collect_turns(lines, line, &turns);
    if (status == STATUS_OK)
        status = put_turns(&turns, timeline);
    uint64_t end_ns = lines->watch->spans[line->process].last_ns;
    if (status == STATUS_OK && (timeline->count == 0 || timeline->points[timeline->count - 1].time_ns < end_ns))
        status = series_add(timeline, end_ns, last);
    series_reduce(timeline);
    free(turns.items);
    return status;
}

static int compare_most(const void *left, const void *right) {
    const struct line *a = left, *b = right;
    int order = (a->most_bytes < b->most_bytes) - (a->most_bytes > b->most_bytes);
    order = order != 0 ? order : (a->process > b->process) - (a->process < b->process);
    return order != 0 ? order : compare_places(a->frame->file, a->frame->line, b->frame->file, b->frame->line);
}

static enum status take_most(struct lines *lines, struct line_memory *memory) {
    if (lines->count > 1)
        qsort(lines->items, lines->count, sizeof lines->items[0], compare_most);
    for (size_t i = 0; i < lines->count && i < HELD_LINES && lines->items[i].most_bytes > 0; i++) {
        const struct line *line = &lines->items[i];
        struct held_line *held = &memory->held[memory->held_count++];
        *held = (struct held_line){.file = line->frame->file,
                                   .function = line->frame->qualname,
                                   .line = line->frame->line,
                                   .process = line->process,
                                   .most_bytes = line->most_bytes};
        TRY(make_timeline(lines, line, &held->timeline));
    }
    return STATUS_OK;
}

static enum status find(struct lines *lines, const uint32_t *charged, struct line_memory *memory) {
    TRY(group_paths(lines, charged));
    for (size_t i = 0; i < lines->count; i++) {
        struct moments moments;
        look_at_moments(lines, &lines->items[i], &moments);
        TRY(judge_line(lines, &lines->items[i], &moments, memory));
    }
    if (memory->leak_count > 1)
        qsort(memory->leaks, memory->leak_count, sizeof memory->leaks[0], compare_leaks);
    return take_most(lines, memory);
}

enum status line_memory_find(const struct profile *profile, const uint32_t *charged, struct line_memory *memory) {
    struct lines lines = {.profile = profile, .watch = &profile->builder->held};
    enum status status = find(&lines, charged, memory);
    free(lines.items);
    free(lines.next_path);
    digest_map_release(&lines.index);
    return status;
}

void line_memory_release(struct line_memory *memory) {
    free(memory->leaks);
    for (size_t i = 0; i < memory->held_count; i++)
        series_release(&memory->held[i].timeline);
    *memory = (struct line_memory){0};
}
