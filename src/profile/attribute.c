/* A profile's stacks are a tree whose parents come before their children. So nothing here walks a stack: what a stack
 * is charged to is passed down the tree, sums are passed up it, and one walk over it tells which frame of a recursion
 * is the outermost. All of it is linear in the number of stacks, however deep they are. */
#include "profile/attribute.h"

#include "base/digest.h"
#include "profile/builder.h"
#include "profile/natives.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

struct row_table {
    struct attribute_row *rows;
    size_t count, capacity;
    struct digest_map index; /* -> row + 1 */
    uint32_t *of_frame;      /* frame -> row; meaningless for hidden frames */
    uint32_t *active_count;  /* row -> how many frames of the path being walked are it */
};

struct work {
    const struct profile *profile;
    const struct attribute_options *options;
    struct attribution *result;
    uint8_t *frame_class;
    uint32_t *charged; /* stack -> the stack whose innermost frame has its self; 0: none */
    uint8_t *class;    /* stack -> its innermost frame's class, called as it is there */
    uint8_t *visible;  /* the same of its innermost frame that is not hidden: C between two frames has none */
    uint8_t *best;     /* stack -> the highest class in it */
    uint64_t *sums;    /* stack × measure -> of it and the stacks below it that count alike */
    uint32_t *taken;   /* the same: the measures that were taken of their processes */
    uint32_t *first_child;
    uint32_t *next_sibling;
    struct row_table lines, functions;
    struct native_table natives;
    bool library_runs_strings;
    int measures[MEASURE_COUNT]; /* those taken */
    int measure_count;
};

static const struct attribute_options DEFAULTS = {.thread = ATTRIBUTE_ANY, .process = ATTRIBUTE_ANY};

bool attribute_glob_matches(const char *glob, const char *path) {
    if (fnmatch(glob, path, 0) == 0)
        return true;
    if (*glob == '/' || *glob == '*')
        return false;
    for (const char *slash = strchr(path, '/'); slash != NULL; slash = strchr(slash + 1, '/'))
        if (fnmatch(glob, slash + 1, 0) == 0)
            return true;
    return false;
}

static bool any_matches(const char *const *globs, size_t count, const char *path) {
    for (size_t i = 0; i < count; i++)
        if (attribute_glob_matches(globs[i], path))
            return true;
    return false;
}

static uint8_t classify(const struct attribute_options *options, const struct profile_frame *frame) {
    /* Without a file there is no line to charge: the garbage collector's and C's time is the caller's. */
    if (*frame->file == '\0' || any_matches(options->exclude, options->exclude_count, frame->file))
        return FRAME_HIDDEN;
    if (options->only_count > 0)
        return any_matches(options->only, options->only_count, frame->file) ? FRAME_USER : FRAME_HIDDEN;
    if (frame->kind == CAPTURE_FRAME_NATIVE)
        return FRAME_NATIVE;
    if (options->all || !frame->is_library)
        return FRAME_USER;
    /* What it takes to import is the importing line's, which Python's own tracebacks leave out as well. */
    return strncmp(frame->file, "<frozen importlib.", strlen("<frozen importlib.")) == 0 ? FRAME_IMPORT : FRAME_LIBRARY;
}

static void classify_frames(struct work *work) {
    const struct profile_frame *frames = work->profile->frames;
    work->library_runs_strings =
        !work->options->all && work->options->only_count == 0 && library_runs_strings(work->profile);
    work->frame_class[0] = FRAME_HIDDEN;
    for (size_t i = 1; i < work->profile->frame_count; i++) {
        /* Neighbours often share the file, and globs are slow. */
        bool is_like_last = frames[i].file == frames[i - 1].file && frames[i].kind == frames[i - 1].kind &&
                            frames[i].is_library == frames[i - 1].is_library;
        work->frame_class[i] = is_like_last ? work->frame_class[i - 1] : classify(work->options, &frames[i]);
    }
}

/* Of several functions on one line (a lambda in its call) the line is the one's that begins first. */
static bool is_better_name(const struct profile_frame *frame, const struct attribute_row *row) {
    return frame->first_line < row->first_line ||
           (frame->first_line == row->first_line && strcmp(frame->qualname, row->qualname) < 0);
}

static enum status find_row(struct row_table *table, const struct profile_frame *frame, bool is_line, uint32_t *row) {
    const uint64_t fields[] = {(uintptr_t)frame->file, is_line ? 0 : (uintptr_t)frame->function,
                               (uint32_t)(is_line ? frame->line : frame->first_line)};
    struct digest key = digest_of(fields, sizeof fields);
    uint32_t known = digest_map_get(&table->index, key);
    if (known == 0) {
        TRY(builder_reserve((void **)&table->rows, table->count, &table->capacity, sizeof table->rows[0]));
        TRY(digest_map_set(&table->index, key, (uint32_t)table->count + 1));
        table->rows[table->count++] = (struct attribute_row){
            .file = frame->file,
            .line = is_line ? frame->line : -1,
            .is_library = frame->is_library,
            .is_native = frame->kind == CAPTURE_FRAME_NATIVE,
        };
        known = (uint32_t)table->count;
    }
    struct attribute_row *found = &table->rows[known - 1];
    if (found->function == NULL || is_better_name(frame, found)) {
        found->function = frame->function;
        found->qualname = frame->qualname;
        found->first_line = frame->first_line;
    }
    *row = known - 1;
    return STATUS_OK;
}

static enum status make_rows(struct work *work, struct row_table *table, bool is_line) {
    const struct profile *profile = work->profile;
    table->of_frame = calloc(profile->frame_count, sizeof table->of_frame[0]);
    if (table->of_frame == NULL)
        return STATUS_FAILED;
    for (size_t i = 0; i < profile->frame_count; i++)
        if (work->frame_class[i] != FRAME_HIDDEN)
            TRY(find_row(table, &profile->frames[i], is_line, &table->of_frame[i]));
    table->active_count = calloc(table->count + 1, sizeof table->active_count[0]);
    return table->active_count != NULL ? STATUS_OK : STATUS_FAILED;
}

/* What a library runs that stands in a string (a line of a .pth file, a namedtuple's method) is the library's; so is
 * what it starts another interpreter with (multiprocessing's -c "from multiprocessing.spawn import ..."). */
static uint8_t class_of(const struct work *work, uint32_t stack) {
    const struct profile_stack *stacks = work->profile->stacks;
    uint8_t class = work->frame_class[stacks[stack].frame];
    if (class != FRAME_USER || work->visible[stacks[stack].parent] != FRAME_LIBRARY)
        return class;
    return strcmp(work->profile->frames[stacks[stack].frame].file, "<string>") == 0 ? FRAME_LIBRARY : FRAME_USER;
}

/* Down the tree: the innermost frame at or above each stack that is of the highest class there. */
static void charge_stacks(struct work *work) {
    work->visible[0] = work->library_runs_strings ? FRAME_LIBRARY : FRAME_HIDDEN;
    for (uint32_t i = 1; i < work->profile->stack_count; i++) {
        uint32_t parent = work->profile->stacks[i].parent;
        uint8_t class = class_of(work, i);
        work->class[i] = class;
        work->visible[i] = class != FRAME_HIDDEN ? class : work->visible[parent];
        work->best[i] = class > work->best[parent] ? class : work->best[parent];
        work->charged[i] = class != FRAME_HIDDEN && class == work->best[i] ? i : work->charged[parent];
    }
}

static bool is_wanted(const struct work *work, const struct profile_entry *entry) {
    const struct attribute_options *options = work->options;
    return (options->thread == ATTRIBUTE_ANY || options->thread == entry->thread) &&
           (options->process == ATTRIBUTE_ANY || options->process == work->profile->threads[entry->thread].process);
}

static void add(uint64_t *sum, uint64_t amount) {
    *sum = saturating_add(*sum, amount);
}

static uint64_t *sum_of(const struct work *work, uint32_t stack, int measure) {
    return &work->sums[(size_t)stack * (size_t)work->measure_count + (size_t)measure];
}

static void count_entry(struct work *work, const struct profile_entry *entry, struct attribute_native *native,
                        int measure, uint64_t amount) {
    struct attribution *result = work->result;
    enum measure id = (enum measure)work->measures[measure];
    uint32_t charged = work->charged[entry->stack];
    if (charged == 0) {
        add(&result->left_out[id], amount);
        return;
    }
    uint32_t frame = work->profile->stacks[charged].frame;
    add(&work->lines.rows[work->lines.of_frame[frame]].self[id], amount);
    add(&work->functions.rows[work->functions.of_frame[frame]].self[id], amount);
    if (native != NULL)
        add(&native->self[id], amount);
    add(&result->sums[id], amount);
    add(&result->threads[entry->thread][id], amount);
    add(&result->processes[work->profile->threads[entry->thread].process][id], amount);
    add(sum_of(work, entry->stack, measure), amount);
}

/* The native function that the stack ends with; NULL when it ends with none, or is charged to nothing. */
static enum status find_native(struct work *work, uint32_t stack, struct attribute_native **native) {
    const struct profile *profile = work->profile;
    const struct profile_frame *innermost = &profile->frames[profile->stacks[stack].frame];
    *native = NULL;
    if (work->charged[stack] == 0 || !native_is_known(innermost))
        return STATUS_OK;
    const struct profile_frame *charged = &profile->frames[profile->stacks[work->charged[stack]].frame];
    return native_find(&work->natives, innermost, charged->file, charged->line, native);
}

static void note_taken(struct work *work, const struct profile_entry *entry, struct attribute_native *native) {
    uint32_t taken = work->profile->processes[work->profile->threads[entry->thread].process].taken;
    uint32_t charged = work->charged[entry->stack], frame = work->profile->stacks[charged].frame;
    if (charged == 0) {
        work->result->left_out_taken |= taken;
        return;
    }
    work->lines.rows[work->lines.of_frame[frame]].taken |= taken;
    work->functions.rows[work->functions.of_frame[frame]].taken |= taken;
    work->taken[entry->stack] |= taken;
    if (native != NULL)
        native->taken |= taken;
}

static enum status count_entries(struct work *work) {
    for (size_t i = 0; i < work->profile->entry_count; i++) {
        const struct profile_entry *entry = &work->profile->entries[i];
        struct attribute_native *native = NULL;
        if (!is_wanted(work, entry))
            continue;
        TRY(find_native(work, entry->stack, &native));
        note_taken(work, entry, native);
        for (int m = 0; m < work->measure_count; m++)
            count_entry(work, entry, native, m, profile_value(work->profile, i, (enum measure)work->measures[m]));
    }
    return STATUS_OK;
}

/* Up the tree. What has user code in it is nothing to a caller that has none: a stack stands for itself only when it
 * has none at all. The same for library code and callers that are native. */
static void sum_up(struct work *work) {
    for (uint32_t i = (uint32_t)work->profile->stack_count; i-- > 1;) {
        uint32_t parent = work->profile->stacks[i].parent;
        work->next_sibling[i] = work->first_child[parent];
        work->first_child[parent] = i;
        if (parent == 0 || work->best[i] != work->best[parent])
            continue;
        work->taken[parent] |= work->taken[i];
        for (int m = 0; m < work->measure_count; m++)
            add(sum_of(work, parent, m), *sum_of(work, i, m));
    }
}

static bool has_total(const struct work *work, uint32_t stack) {
    return work->class[stack] != FRAME_HIDDEN && work->class[stack] == work->best[stack];
}

static void enter_row(const struct work *work, struct row_table *table, uint32_t stack) {
    uint32_t row = table->of_frame[work->profile->stacks[stack].frame];
    if (table->active_count[row]++ > 0)
        return;
    table->rows[row].taken |= work->taken[stack];
    for (int m = 0; m < work->measure_count; m++)
        add(&table->rows[row].total[work->measures[m]], *sum_of(work, stack, m));
}

static void enter_stack(struct work *work, uint32_t stack) {
    if (stack != 0 && has_total(work, stack)) {
        enter_row(work, &work->lines, stack);
        enter_row(work, &work->functions, stack);
    }
}

static void leave_stack(struct work *work, uint32_t stack) {
    if (stack != 0 && has_total(work, stack)) {
        uint32_t frame = work->profile->stacks[stack].frame;
        work->lines.active_count[work->lines.of_frame[frame]]--;
        work->functions.active_count[work->functions.of_frame[frame]]--;
    }
}

/* Through the whole tree, children before siblings, so that active_count says what the path down to here holds. */
static void count_totals(struct work *work) {
    uint32_t stack = 0;
    for (;;) {
        if (work->first_child[stack] != 0) {
            stack = work->first_child[stack];
            enter_stack(work, stack);
            continue;
        }
        leave_stack(work, stack);
        while (stack != 0 && work->next_sibling[stack] == 0) {
            stack = work->profile->stacks[stack].parent;
            leave_stack(work, stack);
        }
        if (stack == 0)
            return;
        stack = work->next_sibling[stack];
        enter_stack(work, stack);
    }
}

static int compare_numbers(int32_t left, int32_t right) {
    return (left > right) - (left < right);
}

static int compare_rows(const void *left, const void *right) {
    const struct attribute_row *a = left;
    const struct attribute_row *b = right;
    int order = a->file != b->file ? strcmp(a->file, b->file) : 0;
    order = order != 0 ? order : compare_numbers(a->line, b->line);
    order = order != 0 ? order : compare_numbers(a->first_line, b->first_line);
    return order != 0 ? order : strcmp(a->function, b->function);
}

static bool is_row_empty(const struct attribute_row *row) {
    for (int m = 0; m < MEASURE_COUNT; m++)
        if (row->self[m] != 0 || row->total[m] != 0)
            return false;
    return true;
}

/* Drops the rows that nothing was charged to, and hands the others over. */
static void finish_rows(struct row_table *table, struct attribute_row **rows, size_t *count) {
    size_t kept = 0;
    for (size_t i = 0; i < table->count; i++)
        if (!is_row_empty(&table->rows[i]))
            table->rows[kept++] = table->rows[i];
    if (kept > 0)
        qsort(table->rows, kept, sizeof table->rows[0], compare_rows);
    *rows = table->rows;
    *count = kept;
    table->rows = NULL;
}

static bool allocate(struct work *work) {
    const struct profile *profile = work->profile;
    for (int m = 0; m < MEASURE_COUNT; m++)
        if (profile_has(profile, (enum measure)m))
            work->measures[work->measure_count++] = m;
    work->frame_class = calloc(profile->frame_count, sizeof work->frame_class[0]);
    work->charged = calloc(profile->stack_count, sizeof work->charged[0]);
    work->class = calloc(profile->stack_count, sizeof work->class[0]);
    work->visible = calloc(profile->stack_count, sizeof work->visible[0]);
    work->best = calloc(profile->stack_count, sizeof work->best[0]);
    work->sums = calloc(profile->stack_count, ((size_t)work->measure_count + 1) * sizeof work->sums[0]);
    work->taken = calloc(profile->stack_count, sizeof work->taken[0]);
    work->first_child = calloc(profile->stack_count, sizeof work->first_child[0]);
    work->next_sibling = calloc(profile->stack_count, sizeof work->next_sibling[0]);
    work->result->threads = calloc(profile->thread_count + 1, sizeof work->result->threads[0]);
    work->result->processes = calloc(profile->process_count + 1, sizeof work->result->processes[0]);
    return work->frame_class != NULL && work->charged != NULL && work->class != NULL && work->visible != NULL &&
           work->best != NULL && work->sums != NULL && work->taken != NULL && work->first_child != NULL &&
           work->next_sibling != NULL && work->result->threads != NULL && work->result->processes != NULL;
}

static void release_rows(struct row_table *table) {
    free(table->rows);
    free(table->of_frame);
    free(table->active_count);
    digest_map_release(&table->index);
}

static enum status attribute(struct work *work) {
    if (!allocate(work))
        return STATUS_FAILED;
    classify_frames(work);
    TRY(make_rows(work, &work->lines, true));
    TRY(make_rows(work, &work->functions, false));
    charge_stacks(work);
    TRY(count_entries(work));
    if (work->options->thread == ATTRIBUTE_ANY)
        TRY(line_memory_find(work->profile, work->charged, &work->result->memory));
    sum_up(work);
    count_totals(work);
    finish_rows(&work->lines, &work->result->lines, &work->result->line_count);
    finish_rows(&work->functions, &work->result->functions, &work->result->function_count);
    work->result->classes = work->class;
    work->class = NULL;
    return native_finish(&work->natives, profile_has(work->profile, MEASURE_CPU_NATIVE_NS), work->result);
}

enum status attribute_profile(const struct profile *profile, const struct attribute_options *options,
                              struct attribution *attribution, struct error *error) {
    *attribution = (struct attribution){0};
    struct work work = {.profile = profile, .options = options != NULL ? options : &DEFAULTS, .result = attribution};
    enum status status = attribute(&work);
    free(work.frame_class);
    free(work.charged);
    free(work.class);
    free(work.visible);
    free(work.best);
    free(work.sums);
    free(work.taken);
    free(work.first_child);
    free(work.next_sibling);
    release_rows(&work.lines);
    release_rows(&work.functions);
    native_release(&work.natives);
    if (status != STATUS_OK) {
        attribution_release(attribution);
        return error_set(error, status, "cannot attribute the profile: %s",
                         status == STATUS_FAILED ? "out of memory" : status_name(status));
    }
    return STATUS_OK;
}

void attribution_release(struct attribution *attribution) {
    free(attribution->lines);
    free(attribution->functions);
    free(attribution->natives);
    free(attribution->native_functions);
    line_memory_release(&attribution->memory);
    free(attribution->classes);
    free(attribution->threads);
    free(attribution->processes);
    *attribution = (struct attribution){0};
}
