/* Memory: what is live of what was allocated, whoever gives it back. */
#include "profile/builder.h"

#include <stdlib.h>
#include <string.h>

enum { TIMELINE_POINTS = 1000 };
/* What all execs together may cost; a file can tell of one in a few bytes. Those beyond pass for none. */
static const uint64_t MAX_PROGRAM_STEPS = 2000000000;

/* The thread that a process × stack is counted with. False when the process has none at all. */
static bool find_allocator(const struct profile *profile, uint32_t process, uint32_t stack, uint32_t *thread) {
    uint32_t known = digest_map_get(&profile->builder->allocators, digest_of_pair(process, stack));
    if (known == 0)
        known = digest_map_get(&profile->builder->first_threads, digest_of_pair(process, 0));
    *thread = known - 1;
    return known != 0;
}

enum status builder_note_allocator(struct profile *profile, uint32_t thread, uint32_t stack) {
    struct digest key = digest_of_pair(profile->threads[thread].process, stack);
    if (digest_map_get(&profile->builder->allocators, key) != 0)
        return STATUS_OK;
    return digest_map_set(&profile->builder->allocators, key, thread + 1);
}

enum status profile_add_difference(struct profile *profile, uint32_t process, uint32_t stack, enum measure measure,
                                   int64_t amount) {
    uint32_t thread = 0;
    size_t entry = 0;
    if (!find_allocator(profile, process, stack, &thread))
        return STATUS_OK;
    TRY(builder_note_allocator(profile, thread, stack));
    TRY(builder_find_entry(profile, thread, stack, measure, &entry));
    /* In whatever order they come, only the sum has to be a number. */
    profile->columns[measure][entry] += (uint64_t)amount;
    return held_watch_change(&profile->builder->held, process, stack, measure, amount);
}

/* What a capture lacks may leave less than nothing. */
static void clamp(struct profile *profile, enum measure measure) {
    for (size_t i = 0; profile->columns[measure] != NULL && i < profile->entry_count; i++)
        if (profile->columns[measure][i] > INT64_MAX)
            profile->columns[measure][i] = 0;
}

/* ------------------------------------------------------------------------------------------------ programs ---- */

static const enum measure PEAKS[PEAK_MEASURES] = {MEASURE_PEAK_BYTES, MEASURE_PEAK_VARIANCE};

static enum status find_program(struct profile_builder *builder, uint32_t process, struct memory_program **program) {
    while (builder->program_count <= process) {
        TRY(builder_reserve((void **)&builder->programs, builder->program_count, &builder->program_capacity,
                            sizeof builder->programs[0]));
        builder->programs[builder->program_count++] = (struct memory_program){0};
    }
    *program = &builder->programs[process];
    return STATUS_OK;
}

static uint32_t process_of(const struct profile *profile, size_t entry) {
    return profile->threads[profile->entries[entry].thread].process;
}

/* Room for the peaks of all entries. */
static enum status reserve_kept(struct profile *profile) {
    struct profile_builder *builder = profile->builder;
    for (size_t i = 0; i < PEAK_MEASURES; i++) {
        uint64_t *grown = reallocarray(builder->kept_peaks[i], profile->entry_count + 1, sizeof *grown);
        if (grown == NULL)
            return STATUS_FAILED;
        memset(grown + builder->kept_count, 0, (profile->entry_count - builder->kept_count) * sizeof *grown);
        builder->kept_peaks[i] = grown;
    }
    builder->kept_count = profile->entry_count;
    return STATUS_OK;
}

/* Another program: what lived of the one before is gone. What it held at its peak is kept, to be the process's unless
 * this one comes to hold more. */
static enum status begin_program(struct profile *profile, uint32_t process, struct memory_program *program) {
    static const enum measure LIVE[] = {MEASURE_LIVE_BYTES, MEASURE_LIVE_COUNT, MEASURE_LIVE_VARIANCE};
    struct profile_builder *builder = profile->builder;
    bool is_highest = program->peak_bytes > program->kept_peak_bytes;
    builder->program_steps += profile->entry_count + builder->held.path_count + 1;
    if (builder->program_steps > MAX_PROGRAM_STEPS)
        return STATUS_OK;
    TRY(reserve_kept(profile));
    for (size_t entry = 0; entry < profile->entry_count; entry++) {
        if (process_of(profile, entry) != process)
            continue;
        for (size_t i = 0; i < PEAK_MEASURES; i++) {
            if (is_highest)
                builder->kept_peaks[i][entry] = profile_value(profile, entry, PEAKS[i]);
            if (profile_has(profile, PEAKS[i]))
                profile->columns[PEAKS[i]][entry] = 0;
        }
        for (size_t i = 0; i < sizeof LIVE / sizeof LIVE[0]; i++)
            if (profile_has(profile, LIVE[i]))
                profile->columns[LIVE[i]][entry] = 0;
    }
    program->kept_peak_bytes = is_highest ? program->peak_bytes : program->kept_peak_bytes;
    program->lost_before = saturating_add(program->lost_before, program->lost_records);
    return held_watch_forget(&builder->held, process);
}

/* The peaks are those of the program that held most. */
static void choose_peaks(struct profile *profile) {
    struct profile_builder *builder = profile->builder;
    for (size_t entry = 0; entry < profile->entry_count; entry++) {
        uint32_t process = process_of(profile, entry);
        if (process >= builder->program_count ||
            builder->programs[process].kept_peak_bytes <= builder->programs[process].peak_bytes)
            continue;
        for (size_t i = 0; i < PEAK_MEASURES; i++)
            if (profile_has(profile, PEAKS[i]))
                profile->columns[PEAKS[i]][entry] = entry < builder->kept_count ? builder->kept_peaks[i][entry] : 0;
    }
    for (size_t i = 0; i < builder->program_count; i++)
        builder->programs[i].kept_peak_bytes = 0;
}

void builder_finish_memory(struct profile *profile) {
    static const enum measure DIFFERENCES[] = {MEASURE_PEAK_BYTES, MEASURE_LIVE_BYTES,    MEASURE_TEMPORARY_BYTES,
                                               MEASURE_LIVE_COUNT, MEASURE_PEAK_VARIANCE, MEASURE_LIVE_VARIANCE};
    choose_peaks(profile);
    for (size_t i = 0; i < sizeof DIFFERENCES / sizeof DIFFERENCES[0]; i++)
        clamp(profile, DIFFERENCES[i]);
    for (size_t i = 0; i < profile->process_count; i++)
        series_reduce(&profile->processes[i].memory.timeline);
}

/* Who tells of the footprint knows what became of all that was allocated: what is never told is a true 0. */
static enum status take_measures(struct profile *profile, uint32_t process) {
    static const enum measure TAKEN[] = {MEASURE_ALLOC_BYTES, MEASURE_ALLOC_COUNT,  MEASURE_PEAK_BYTES,
                                         MEASURE_LIVE_BYTES,  MEASURE_PYTHON_BYTES, MEASURE_TEMPORARY_BYTES,
                                         MEASURE_LIVE_COUNT};
    for (size_t i = 0; i < sizeof TAKEN / sizeof TAKEN[0]; i++)
        TRY(builder_take_measure(profile, process, TAKEN[i]));
    return STATUS_OK;
}

enum status profile_set_footprint(struct profile *profile, uint32_t process, const struct capture_footprint *memory) {
    struct profile_memory *set = &profile->processes[process].memory;
    struct memory_program *program = NULL;
    if (!set->is_taken)
        TRY(take_measures(profile, process));
    TRY(find_program(profile->builder, process, &program));
    if (memory->exec_count > program->exec_count)
        TRY(begin_program(profile, process, program));
    program->exec_count = memory->exec_count;
    program->peak_bytes = memory->peak_bytes;
    program->lost_records = memory->lost_records;
    set->is_taken = true;
    set->footprint_bytes = memory->footprint_bytes;
    set->inherited_bytes = memory->inherited_bytes;
    set->stride_bytes = memory->stride_bytes;
    set->lost_records = saturating_add(program->lost_before, memory->lost_records);
    if (memory->resident_bytes > set->resident_bytes)
        set->resident_bytes = memory->resident_bytes;
    if (memory->peak_bytes > set->peak_bytes) {
        set->peak_bytes = memory->peak_bytes;
        set->peak_ns = memory->peak_ns;
    }
    set->timeline.limit = TIMELINE_POINTS;
    for (size_t i = 0; i < memory->point_count; i++)
        TRY(series_add(&set->timeline, memory->points[i].time_ns, memory->points[i].bytes));
    uint64_t first_point_ns = memory->point_count > 0 ? memory->points[0].time_ns : memory->time_ns;
    return held_watch_tick(&profile->builder->held, process, first_point_ns, memory->time_ns);
}
