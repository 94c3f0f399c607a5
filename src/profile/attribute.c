/* A profile's stacks are a tree whose parents come before their children. So nothing here walks a stack: what a stack
 * is charged to is passed down the tree, sums are passed up it, and one walk over it tells which frame of a recursion
 * is the outermost. All of it is linear in the number of stacks, however deep they are. What does not depend on who is
 * counted is found once; an attribution of one thread then touches no more than the stacks that this thread has, so
 * that all threads one after the other cost what there is of them together. */
#include "profile/attribute.h"

#include "profile/attribute_rows.h"
#include "profile/builder.h"
#include "profile/natives.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

struct attributor {
    const struct profile *profile;
    const struct attribute_options *options;
    uint8_t *frame_class;
    uint32_t *charged; /* stack -> the stack whose innermost frame has its self; 0: none */
    uint8_t *class;    /* stack -> its innermost frame's class, called as it is there */
    uint8_t *visible;  /* the same of its innermost frame that is not hidden: C between two frames has none */
    uint8_t *best;     /* stack -> the highest class in it */
    bool library_runs_strings;
    int measures[MEASURE_COUNT]; /* those taken */
    int measure_count;
    size_t *starts;   /* thread -> its first place in entry_of; then the end */
    size_t *entry_of; /* the numbers of the entries, thread after thread */
    struct row_table lines, functions;

    /* Of one attribution; what it touched is as it was before when it ends. */
    struct attribution *result;
    uint64_t *sums;  /* stack × measure -> of it and the stacks below it that count alike */
    uint32_t *taken; /* the same: the measures that were taken of their processes */
    uint32_t *first_child;
    uint32_t *next_sibling;
    bool *is_reached;  /* stack -> whether it, or what it calls, was charged with anything */
    uint32_t *reached; /* those stacks, callers before what they call */
    size_t reached_count;
    struct native_table natives;
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

static void classify_frames(struct attributor *work) {
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

/* What a library runs that stands in a string (a line of a .pth file, a namedtuple's method) is the library's; so is
 * what it starts another interpreter with (multiprocessing's -c "from multiprocessing.spawn import ..."). */
static uint8_t class_of(const struct attributor *work, uint32_t stack) {
    const struct profile_stack *stacks = work->profile->stacks;
    uint8_t class = work->frame_class[stacks[stack].frame];
    if (class != FRAME_USER || work->visible[stacks[stack].parent] != FRAME_LIBRARY)
        return class;
    return strcmp(work->profile->frames[stacks[stack].frame].file, "<string>") == 0 ? FRAME_LIBRARY : FRAME_USER;
}

/* Down the tree: the innermost frame at or above each stack that is of the highest class there. */
static void charge_stacks(struct attributor *work) {
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

static void add(uint64_t *sum, uint64_t amount) {
    *sum = saturating_add(*sum, amount);
}

static uint64_t *share_of(const struct attribute_shares *shares, uint32_t number, enum measure measure) {
    return &shares->sums[number - shares->first][measure];
}

static uint64_t *sum_of(const struct attributor *work, uint32_t stack, int measure) {
    return &work->sums[(size_t)stack * (size_t)work->measure_count + (size_t)measure];
}

static void count_entry(struct attributor *work, const struct profile_entry *entry, struct attribute_native *native,
                        int measure, uint64_t amount) {
    struct attribution *result = work->result;
    enum measure id = (enum measure)work->measures[measure];
    uint32_t charged = work->charged[entry->stack];
    if (charged == 0) {
        add(&result->left_out[id], amount);
        return;
    }
    uint32_t frame = work->profile->stacks[charged].frame;
    add(&rows_use(&work->lines, frame)->self[id], amount);
    add(&rows_use(&work->functions, frame)->self[id], amount);
    if (native != NULL)
        add(&native->self[id], amount);
    add(&result->sums[id], amount);
    add(share_of(&result->threads, entry->thread, id), amount);
    add(share_of(&result->processes, work->profile->threads[entry->thread].process, id), amount);
    add(sum_of(work, entry->stack, measure), amount);
}

/* The native function that the stack ends with; NULL when it ends with none, or is charged to nothing. */
static enum status find_native(struct attributor *work, uint32_t stack, struct attribute_native **native) {
    const struct profile *profile = work->profile;
    const struct profile_frame *innermost = &profile->frames[profile->stacks[stack].frame];
    *native = NULL;
    if (work->charged[stack] == 0 || !native_is_known(innermost))
        return STATUS_OK;
    const struct profile_frame *charged = &profile->frames[profile->stacks[work->charged[stack]].frame];
    return native_find(&work->natives, innermost, charged->file, charged->line, native);
}

static void note_taken(struct attributor *work, const struct profile_entry *entry, struct attribute_native *native) {
    uint32_t taken = work->profile->processes[work->profile->threads[entry->thread].process].taken;
    uint32_t charged = work->charged[entry->stack], frame = work->profile->stacks[charged].frame;
    if (charged == 0) {
        work->result->left_out_taken |= taken;
        return;
    }
    rows_use(&work->lines, frame)->taken |= taken;
    rows_use(&work->functions, frame)->taken |= taken;
    work->taken[entry->stack] |= taken;
    if (native != NULL)
        native->taken |= taken;
}

/* The stack and its callers, as far as they are not yet reached. */
static void reach(struct attributor *work, uint32_t stack) {
    size_t count = 0, at;
    for (uint32_t i = stack; i != 0 && !work->is_reached[i]; i = work->profile->stacks[i].parent)
        count++;
    at = work->reached_count += count;
    for (uint32_t i = stack; i != 0 && !work->is_reached[i]; i = work->profile->stacks[i].parent) {
        work->is_reached[i] = true;
        work->reached[--at] = i;
    }
}

static enum status count_entries(struct attributor *work, int64_t thread) {
    const struct profile *profile = work->profile;
    int64_t process = work->options->process;
    size_t begin = thread != ATTRIBUTE_ANY ? work->starts[thread] : 0;
    size_t end = thread != ATTRIBUTE_ANY ? work->starts[thread + 1] : profile->entry_count;
    for (size_t i = begin; i < end; i++) {
        const struct profile_entry *entry = &profile->entries[work->entry_of[i]];
        struct attribute_native *native = NULL;
        if (process != ATTRIBUTE_ANY && process != profile->threads[entry->thread].process)
            continue;
        TRY(find_native(work, entry->stack, &native));
        note_taken(work, entry, native);
        reach(work, entry->stack);
        for (int m = 0; m < work->measure_count; m++)
            count_entry(work, entry, native, m,
                        profile_value(profile, work->entry_of[i], (enum measure)work->measures[m]));
    }
    return STATUS_OK;
}

/* Up the tree. What has user code in it is nothing to a caller that has none: a stack stands for itself only when it
 * has none at all. The same for library code and callers that are native. */
static void sum_up(struct attributor *work) {
    for (size_t at = work->reached_count; at-- > 0;) {
        uint32_t i = work->reached[at], parent = work->profile->stacks[i].parent;
        work->next_sibling[i] = work->first_child[parent];
        work->first_child[parent] = i;
        if (parent == 0 || work->best[i] != work->best[parent])
            continue;
        work->taken[parent] |= work->taken[i];
        for (int m = 0; m < work->measure_count; m++)
            add(sum_of(work, parent, m), *sum_of(work, i, m));
    }
}

static bool has_total(const struct attributor *work, uint32_t stack) {
    return work->class[stack] != FRAME_HIDDEN && work->class[stack] == work->best[stack];
}

static void enter_row(const struct attributor *work, struct row_table *table, uint32_t stack) {
    uint32_t frame = work->profile->stacks[stack].frame;
    if (table->active_count[table->of_frame[frame]]++ > 0)
        return;
    struct attribute_row *row = rows_use(table, frame);
    row->taken |= work->taken[stack];
    for (int m = 0; m < work->measure_count; m++)
        add(&row->total[work->measures[m]], *sum_of(work, stack, m));
}

static void enter_stack(struct attributor *work, uint32_t stack) {
    if (stack != 0 && has_total(work, stack)) {
        enter_row(work, &work->lines, stack);
        enter_row(work, &work->functions, stack);
    }
}

static void leave_stack(struct attributor *work, uint32_t stack) {
    if (stack != 0 && has_total(work, stack)) {
        uint32_t frame = work->profile->stacks[stack].frame;
        work->lines.active_count[work->lines.of_frame[frame]]--;
        work->functions.active_count[work->functions.of_frame[frame]]--;
    }
}

/* Through the whole tree, children before siblings, so that active_count says what the path down to here holds. */
static void count_totals(struct attributor *work) {
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

static void forget_reached(struct attributor *work) {
    for (size_t i = 0; i < work->reached_count; i++) {
        uint32_t stack = work->reached[i];
        work->is_reached[stack] = false;
        work->first_child[stack] = work->next_sibling[stack] = work->taken[stack] = 0;
        memset(sum_of(work, stack, 0), 0, (size_t)work->measure_count * sizeof work->sums[0]);
    }
    work->first_child[0] = 0;
    work->reached_count = 0;
}

/* ------------------------------------------------------------------------------------------------ once -------- */

static bool allocate(struct attributor *work) {
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
    work->is_reached = calloc(profile->stack_count, sizeof work->is_reached[0]);
    work->reached = calloc(profile->stack_count, sizeof work->reached[0]);
    work->starts = calloc(profile->thread_count + 2, sizeof work->starts[0]);
    work->entry_of = calloc(profile->entry_count + 1, sizeof work->entry_of[0]);
    return work->frame_class != NULL && work->charged != NULL && work->class != NULL && work->visible != NULL &&
           work->best != NULL && work->sums != NULL && work->taken != NULL && work->first_child != NULL &&
           work->next_sibling != NULL && work->is_reached != NULL && work->reached != NULL && work->starts != NULL &&
           work->entry_of != NULL;
}

/* A counting sort: a thread's start is counted one place further on than it belongs, moves on by each of the thread's
 * entries, and so ends as the next thread's start. */
static void sort_entries(struct attributor *work) {
    const struct profile *profile = work->profile;
    for (size_t i = 0; i < profile->entry_count; i++)
        work->starts[profile->entries[i].thread + 2]++;
    for (size_t i = 2; i < profile->thread_count + 2; i++)
        work->starts[i] += work->starts[i - 1];
    for (size_t i = 0; i < profile->entry_count; i++)
        work->entry_of[work->starts[profile->entries[i].thread + 1]++] = i;
}

static enum status prepare(struct attributor *work) {
    if (!allocate(work))
        return STATUS_FAILED;
    sort_entries(work);
    classify_frames(work);
    TRY(rows_make(&work->lines, work->profile, work->frame_class, true));
    TRY(rows_make(&work->functions, work->profile, work->frame_class, false));
    charge_stacks(work);
    return STATUS_OK;
}

static enum status fail(enum status status, struct error *error) {
    return error_set(error, status, "cannot attribute the profile: %s",
                     status == STATUS_FAILED ? "out of memory" : status_name(status));
}

enum status attributor_new(const struct profile *profile, const struct attribute_options *options,
                           struct attributor **attributor, struct error *error) {
    struct attributor *work = calloc(1, sizeof *work);
    if (work == NULL)
        return fail(STATUS_FAILED, error);
    work->profile = profile;
    work->options = options != NULL ? options : &DEFAULTS;
    enum status status = prepare(work);
    if (status != STATUS_OK) {
        attributor_free(work);
        return fail(status, error);
    }
    *attributor = work;
    return STATUS_OK;
}

void attributor_free(struct attributor *work) {
    if (work == NULL)
        return;
    free(work->frame_class);
    free(work->charged);
    free(work->class);
    free(work->visible);
    free(work->best);
    free(work->sums);
    free(work->taken);
    free(work->first_child);
    free(work->next_sibling);
    free(work->is_reached);
    free(work->reached);
    free(work->starts);
    free(work->entry_of);
    rows_release(&work->lines);
    rows_release(&work->functions);
    free(work);
}

bool attributor_has_thread(const struct attributor *attributor, size_t thread) {
    return attributor->starts[thread + 1] > attributor->starts[thread];
}

/* ------------------------------------------------------------------------------------------------ each -------- */

static bool make_shares(struct attribute_shares *shares, int64_t only, size_t count) {
    shares->first = only != ATTRIBUTE_ANY ? (size_t)only : 0;
    shares->count = only != ATTRIBUTE_ANY ? 1 : count;
    shares->sums = calloc(shares->count + 1, sizeof shares->sums[0]);
    return shares->sums != NULL;
}

/* What is known of all threads together alone. */
static enum status add_whole(struct attributor *work) {
    struct attribution *result = work->result;
    result->classes = malloc(work->profile->stack_count);
    if (result->classes == NULL)
        return STATUS_FAILED;
    memcpy(result->classes, work->class, work->profile->stack_count);
    return line_memory_find(work->profile, work->charged, &result->memory);
}

static enum status attribute(struct attributor *work, int64_t thread) {
    const struct profile *profile = work->profile;
    struct attribution *result = work->result;
    int64_t process = ATTRIBUTE_ANY;
    if (thread != ATTRIBUTE_ANY)
        process = profile->threads[thread].process;
    if (!make_shares(&result->threads, thread, profile->thread_count) ||
        !make_shares(&result->processes, process, profile->process_count))
        return STATUS_FAILED;
    TRY(count_entries(work, thread));
    if (thread == ATTRIBUTE_ANY)
        TRY(add_whole(work));
    sum_up(work);
    count_totals(work);
    TRY(rows_take(&work->lines, &result->lines, &result->line_count));
    TRY(rows_take(&work->functions, &result->functions, &result->function_count));
    return native_finish(&work->natives, profile_has(profile, MEASURE_CPU_NATIVE_NS), result);
}

enum status attributor_run(struct attributor *attributor, int64_t thread, struct attribution *attribution,
                           struct error *error) {
    *attribution = (struct attribution){0};
    attributor->result = attribution;
    attributor->natives = (struct native_table){0};
    enum status status = attribute(attributor, thread);
    native_release(&attributor->natives);
    forget_reached(attributor);
    if (status != STATUS_OK) {
        attribution_release(attribution);
        return fail(status, error);
    }
    return STATUS_OK;
}

enum status attribute_profile(const struct profile *profile, const struct attribute_options *options,
                              struct attribution *attribution, struct error *error) {
    struct attributor *attributor = NULL;
    *attribution = (struct attribution){0};
    TRY(attributor_new(profile, options, &attributor, error));
    enum status status = attributor_run(attributor, attributor->options->thread, attribution, error);
    attributor_free(attributor);
    return status;
}

const uint64_t *attribute_share(const struct attribute_shares *shares, size_t number) {
    static const uint64_t NOTHING[MEASURE_COUNT];
    bool is_one = number >= shares->first && number - shares->first < shares->count;
    return is_one ? shares->sums[number - shares->first] : NOTHING;
}

void attribution_release(struct attribution *attribution) {
    free(attribution->lines);
    free(attribution->functions);
    free(attribution->natives);
    free(attribution->native_functions);
    line_memory_release(&attribution->memory);
    free(attribution->classes);
    free(attribution->threads.sums);
    free(attribution->processes.sums);
    *attribution = (struct attribution){0};
}
