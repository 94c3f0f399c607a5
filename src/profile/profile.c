#include "profile/profile.h"

#include "profile/builder.h"

#include <stdlib.h>
#include <string.h>

static const struct measure_facts {
    const char *name;
    const char *word;
    enum measure_unit unit;
} MEASURES[MEASURE_COUNT] = {
    [MEASURE_SAMPLES] = {"samples", "samples", UNIT_COUNT},
    [MEASURE_WALL_NS] = {"wall", "wall", UNIT_NS},
    [MEASURE_CPU_NS] = {"cpu", "cpu", UNIT_NS},
    [MEASURE_CPU_PYTHON_NS] = {"cpu_python", "python", UNIT_NS},
    [MEASURE_CPU_NATIVE_NS] = {"cpu_native", "native", UNIT_NS},
    [MEASURE_CPU_KERNEL_NS] = {"cpu_kernel", "kernel", UNIT_NS},
    [MEASURE_WAIT_NS] = {"wait", "wait", UNIT_NS},
    [MEASURE_GIL_WAIT_NS] = {"gil_wait", "gil", UNIT_NS},
    [MEASURE_ALLOC_BYTES] = {"alloc_bytes", "alloc", UNIT_BYTES},
    [MEASURE_ALLOC_COUNT] = {"alloc_count", "alloc_count", UNIT_COUNT},
    [MEASURE_PEAK_BYTES] = {"peak_bytes", "peak", UNIT_BYTES},
    [MEASURE_LIVE_BYTES] = {"live_bytes", "live", UNIT_BYTES},
    [MEASURE_PYTHON_BYTES] = {"python_bytes", "python_bytes", UNIT_BYTES},
    [MEASURE_COPY_BYTES] = {"copy_bytes", "copy", UNIT_BYTES},
    [MEASURE_GPU_NS] = {"gpu", "gpu", UNIT_NS},
    [MEASURE_GPU_BYTES] = {"gpu_bytes", "gpu_bytes", UNIT_BYTES},
    [MEASURE_TEMPORARY_BYTES] = {"temporary_bytes", "temporary", UNIT_BYTES},
    [MEASURE_LIVE_COUNT] = {"live_count", "live_count", UNIT_COUNT},
    [MEASURE_ALLOC_VARIANCE] = {"alloc_variance", "alloc_variance", UNIT_COUNT},
    [MEASURE_PEAK_VARIANCE] = {"peak_variance", "peak_variance", UNIT_COUNT},
    [MEASURE_LIVE_VARIANCE] = {"live_variance", "live_variance", UNIT_COUNT},
    [MEASURE_COPY_VARIANCE] = {"copy_variance", "copy_variance", UNIT_COUNT},
};

_Static_assert((int)MEASURE_COUNT == (int)CAPTURE_MEASURES, "the model has the measures of the file");
_Static_assert(MEASURE_COUNT <= 32, "a process has a bit for each measure");

enum measure_unit measure_unit(enum measure measure) {
    return MEASURES[measure].unit;
}

const char *measure_name(enum measure measure) {
    return MEASURES[measure].name;
}

const char *measure_word(enum measure measure) {
    return MEASURES[measure].word;
}

bool measure_find(const char *name, enum measure *measure) {
    for (enum measure i = 0; i < MEASURE_SHOWN; i++)
        if (strcmp(name, MEASURES[i].word) == 0 || strcmp(name, MEASURES[i].name) == 0) {
            *measure = i;
            return true;
        }
    return false;
}

static bool make_first_items(struct profile *profile) {
    profile->frames = calloc(1, sizeof profile->frames[0]);
    profile->stacks = calloc(1, sizeof profile->stacks[0]);
    if (profile->frames == NULL || profile->stacks == NULL)
        return false;
    profile->frames[0] = (struct profile_frame){
        .function = "",
        .qualname = "",
        .file = "",
        .line = -1,
        .end_line = -1,
        .column = -1,
        .end_column = -1,
        .first_line = -1,
        .is_library = true,
    };
    profile->frame_count = profile->builder->frame_capacity = 1;
    profile->stack_count = profile->builder->stack_capacity = 1;
    return true;
}

struct profile *profile_new(void) {
    struct profile *profile = calloc(1, sizeof *profile);
    if (profile == NULL)
        return NULL;
    profile->builder = calloc(1, sizeof *profile->builder);
    if (profile->builder == NULL || !make_first_items(profile)) {
        profile_free(profile);
        return NULL;
    }
    profile->damage.ended = true;
    /* Four characters for each byte of the longest text. */
    buffer_init(&profile->builder->safe, 1 << 20);
    return profile;
}

static void free_builder(struct profile_builder *builder) {
    if (builder == NULL)
        return;
    arena_release(&builder->arena);
    digest_map_release(&builder->texts);
    digest_map_release(&builder->frames);
    digest_map_release(&builder->stacks);
    digest_map_release(&builder->entries);
    digest_map_release(&builder->library_index);
    digest_map_release(&builder->pids);
    digest_map_release(&builder->first_threads);
    digest_map_release(&builder->allocators);
    buffer_release(&builder->safe);
    held_watch_release(&builder->held);
    for (size_t i = 0; i < PEAK_MEASURES; i++)
        free(builder->kept_peaks[i]);
    free(builder->programs);
    free(builder->text_list);
    free(builder->libraries);
    free(builder);
}

void profile_free(struct profile *profile) {
    if (profile == NULL)
        return;
    free_builder(profile->builder);
    for (int i = 0; i < MEASURE_COUNT; i++)
        free(profile->columns[i]);
    for (size_t i = 0; i < profile->process_count; i++)
        series_release(&profile->processes[i].memory.timeline);
    free(profile->frames);
    free(profile->stacks);
    free(profile->processes);
    free(profile->threads);
    free(profile->entries);
    free(profile->samples);
    free(profile->facts);
    free(profile);
}

bool profile_has(const struct profile *profile, enum measure measure) {
    return profile->columns[measure] != NULL;
}

bool profile_process_has(const struct profile *profile, uint32_t process, enum measure measure) {
    return (profile->processes[process].taken >> measure & 1) != 0;
}

uint64_t profile_value(const struct profile *profile, size_t entry, enum measure measure) {
    return profile->columns[measure] != NULL ? profile->columns[measure][entry] : 0;
}

uint64_t profile_total(const struct profile *profile, enum measure measure) {
    uint64_t total = 0;
    for (size_t i = 0; i < profile->entry_count; i++)
        total = saturating_add(total, profile_value(profile, i, measure));
    return total;
}

/* Newton's, from above. The C library's is in libm, which is not linked. */
static double square_root(double square) {
    double root = square > 1 ? square : 1;
    for (;;) {
        double next = (root + square / root) / 2;
        if (next >= root)
            return root;
        root = next;
    }
}

enum measure measure_variance(enum measure measure) {
    static const enum measure VARIANCES[MEASURE_COUNT] = {[MEASURE_ALLOC_BYTES] = MEASURE_ALLOC_VARIANCE,
                                                          [MEASURE_PEAK_BYTES] = MEASURE_PEAK_VARIANCE,
                                                          [MEASURE_LIVE_BYTES] = MEASURE_LIVE_VARIANCE,
                                                          [MEASURE_COPY_BYTES] = MEASURE_COPY_VARIANCE};
    return VARIANCES[measure] != 0 ? VARIANCES[measure] : MEASURE_COUNT;
}

uint64_t profile_margin(const uint64_t row[MEASURE_COUNT], enum measure measure) {
    static const double NINETEEN_OF_TWENTY = 1.96;
    enum measure variance = measure_variance(measure);
    if (variance == MEASURE_COUNT || row[variance] == 0)
        return 0;
    /* Few samples are skewed: too small a sum comes with too small a variance. Some samples more than there
     * were, 1.96², make up for that, as in the intervals of Agresti and Coull. Variance over sum is what one stands
     * for. */
    double squares = (double)row[variance];
    double one = row[measure] > 0 ? NINETEEN_OF_TWENTY * squares / ((double)row[measure] / 1024) : 0;
    double margin = NINETEEN_OF_TWENTY * 1024 * square_root(squares + one * one);
    return margin < 0x1p64 ? (uint64_t)margin : UINT64_MAX;
}

enum measure profile_main_measure(const struct profile *profile) {
    static const enum measure BY_RANK[] = {MEASURE_WALL_NS, MEASURE_CPU_NS, MEASURE_SAMPLES, MEASURE_ALLOC_BYTES,
                                           MEASURE_WAIT_NS};
    /* Looking from inside gives CPU time; wall time is that of other captures in the same profile. */
    if (profile_has(profile, MEASURE_CPU_PYTHON_NS) && profile_has(profile, MEASURE_CPU_NS))
        return MEASURE_CPU_NS;
    for (size_t i = 0; i < sizeof BY_RANK / sizeof BY_RANK[0]; i++)
        if (profile_has(profile, BY_RANK[i]))
            return BY_RANK[i];
    return MEASURE_SAMPLES;
}
