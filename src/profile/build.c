#include "profile/build.h"

#include "base/array.h"
#include "base/text.h"
#include "profile/builder.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_FACTS = 1000 };

uint64_t saturating_add(uint64_t left, uint64_t right) {
    return left > UINT64_MAX - right ? UINT64_MAX : left + right;
}

enum status builder_reserve(void **array, size_t count, size_t *capacity, size_t item_bytes) {
    return count < UINT32_MAX - 1 ? array_reserve(array, capacity, count + 1, item_bytes) : STATUS_LIMIT;
}

enum status profile_intern_text(struct profile *profile, struct capture_text text, const char **interned) {
    struct profile_builder *builder = profile->builder;
    *interned = "";
    if (text.size_bytes == 0)
        return STATUS_OK;
    buffer_clear(&builder->safe);
    TRY(text_append_safe(&builder->safe, text.bytes, text.size_bytes, true));
    struct digest key = digest_of(builder->safe.data, builder->safe.size_bytes);
    uint32_t known = digest_map_get(&builder->texts, key);
    if (known != 0) {
        *interned = builder->text_list[known - 1];
        return STATUS_OK;
    }
    TRY(builder_reserve((void **)&builder->text_list, builder->text_count, &builder->text_capacity, sizeof(char *)));
    const char *copy = arena_copy_text(&builder->arena, builder->safe.data, builder->safe.size_bytes);
    if (copy == NULL)
        return STATUS_FAILED;
    TRY(digest_map_set(&builder->texts, key, (uint32_t)builder->text_count + 1));
    *interned = builder->text_list[builder->text_count++] = copy;
    return STATUS_OK;
}

enum status builder_intern_frame(struct profile *profile, const struct profile_frame *like, uint32_t *index) {
    struct profile_builder *builder = profile->builder;
    /* Interned texts are equal when their addresses are. */
    const uint64_t fields[] = {like->kind,
                               (uintptr_t)like->function,
                               (uintptr_t)like->qualname,
                               (uintptr_t)like->file,
                               (uint32_t)like->line,
                               (uint32_t)like->end_line,
                               (uint32_t)like->column,
                               (uint32_t)like->end_column,
                               (uint32_t)like->first_line};
    struct digest key = digest_of(fields, sizeof fields);
    if ((*index = digest_map_get(&builder->frames, key)) != 0)
        return STATUS_OK;
    TRY(builder_reserve((void **)&profile->frames, profile->frame_count, &builder->frame_capacity,
                        sizeof profile->frames[0]));
    TRY(digest_map_set(&builder->frames, key, (uint32_t)profile->frame_count));
    struct profile_frame *added = &profile->frames[profile->frame_count];
    *added = *like;
    added->qualname = *like->qualname != '\0' ? like->qualname : like->function;
    added->is_library = like->kind != CAPTURE_FRAME_PYTHON || library_has_frame(profile, like);
    *index = (uint32_t)profile->frame_count++;
    return STATUS_OK;
}

enum status profile_intern_frame(struct profile *profile, const struct profile_frame_key *key, uint32_t *frame) {
    struct profile_frame like = {.kind = key->kind,
                                 .line = key->line,
                                 .end_line = key->end_line,
                                 .column = key->column,
                                 .end_column = key->end_column,
                                 .first_line = key->first_line};
    TRY(profile_intern_text(profile, key->function, &like.function));
    TRY(profile_intern_text(profile, key->qualname, &like.qualname));
    TRY(profile_intern_text(profile, key->file, &like.file));
    return builder_intern_frame(profile, &like, frame);
}

enum status profile_intern_stack(struct profile *profile, uint32_t parent, uint32_t frame, uint32_t *stack) {
    struct profile_builder *builder = profile->builder;
    struct digest key = digest_of_pair(parent, frame);
    if ((*stack = digest_map_get(&builder->stacks, key)) != 0)
        return STATUS_OK;
    TRY(builder_reserve((void **)&profile->stacks, profile->stack_count, &builder->stack_capacity,
                        sizeof profile->stacks[0]));
    TRY(digest_map_set(&builder->stacks, key, (uint32_t)profile->stack_count));
    profile->stacks[profile->stack_count] = (struct profile_stack){
        .parent = parent,
        .frame = frame,
        .depth = profile->stacks[parent].depth + 1,
        .has_python = profile->stacks[parent].has_python || profile->frames[frame].kind == CAPTURE_FRAME_PYTHON,
    };
    *stack = (uint32_t)profile->stack_count++;
    return STATUS_OK;
}

static enum status copy_texts(struct profile *profile, const struct capture_text *texts, size_t count,
                              const char ***copies) {
    *copies = arena_take(&profile->builder->arena, (count + 1) * sizeof **copies);
    if (*copies == NULL)
        return STATUS_FAILED;
    for (size_t i = 0; i < count; i++)
        TRY(profile_intern_text(profile, texts[i], &(*copies)[i]));
    return STATUS_OK;
}

static enum status note_library(struct profile *profile, struct capture_text text) {
    struct profile_builder *builder = profile->builder;
    const char *library = NULL;
    TRY(profile_intern_text(profile, text, &library));
    /* Interned texts are equal when their addresses are. */
    struct digest key = digest_of(&library, sizeof library);
    if (digest_map_get(&builder->library_index, key) != 0)
        return STATUS_OK;
    TRY(builder_reserve((void **)&builder->libraries, builder->library_count, &builder->library_capacity,
                        sizeof builder->libraries[0]));
    TRY(digest_map_set(&builder->library_index, key, 1));
    builder->libraries[builder->library_count++] = library;
    return STATUS_OK;
}

struct digest builder_pid_key(int32_t pid) {
    return digest_of_pair((uint32_t)pid, 0);
}

enum status builder_set_process(struct profile *profile, uint32_t index, const struct capture_process *process) {
    struct profile_process *set = &profile->processes[index];
    const char **command = NULL;
    TRY(copy_texts(profile, process->command, process->command_count, &command));
    for (size_t i = 0; i < process->library_count; i++)
        TRY(note_library(profile, process->libraries[i]));
    TRY(digest_map_set(&profile->builder->pids, builder_pid_key(process->pid), 1));
    set->pid = process->pid;
    set->parent_pid = process->parent_pid;
    set->command = command;
    set->command_count = process->command_count;
    set->python_version = process->python_version;
    set->free_threaded = process->free_threaded;
    set->mode = process->mode;
    set->origin = process->origin;
    set->rate_hz = (double)process->rate_millihertz / 1000;
    set->start_unix_ns = process->start_unix_ns;
    set->start_ns = process->start_ns;
    return STATUS_OK;
}

enum status profile_append_process(struct profile *profile, const struct capture_process *process, uint32_t *index) {
    TRY(builder_reserve((void **)&profile->processes, profile->process_count, &profile->builder->process_capacity,
                        sizeof profile->processes[0]));
    profile->processes[profile->process_count] = (struct profile_process){.wait_status = -1};
    TRY(builder_set_process(profile, (uint32_t)profile->process_count, process));
    *index = (uint32_t)profile->process_count++;
    return STATUS_OK;
}

enum status builder_set_thread(struct profile *profile, uint32_t index, const struct capture_thread *thread) {
    struct profile_thread *set = &profile->threads[index];
    TRY(profile_intern_text(profile, thread->name, &set->name));
    set->process = thread->process;
    set->native_id = thread->native_id;
    set->thread_id = thread->thread_id;
    set->interpreter = thread->interpreter;
    return STATUS_OK;
}

enum status profile_append_thread(struct profile *profile, const struct capture_thread *thread, uint32_t *index) {
    TRY(builder_reserve((void **)&profile->threads, profile->thread_count, &profile->builder->thread_capacity,
                        sizeof profile->threads[0]));
    profile->threads[profile->thread_count] = (struct profile_thread){0};
    TRY(builder_set_thread(profile, (uint32_t)profile->thread_count, thread));
    struct digest process = digest_of_pair(thread->process, 0);
    if (digest_map_get(&profile->builder->first_threads, process) == 0)
        TRY(digest_map_set(&profile->builder->first_threads, process, (uint32_t)profile->thread_count + 1));
    *index = (uint32_t)profile->thread_count++;
    return STATUS_OK;
}

enum status builder_append_fact(struct profile *profile, struct capture_text key, struct capture_text value) {
    struct profile_fact fact;
    TRY(profile_intern_text(profile, key, &fact.key));
    TRY(profile_intern_text(profile, value, &fact.value));
    if (profile->fact_count == MAX_FACTS)
        return STATUS_OK;
    /* Each epoch says it again. */
    for (size_t i = 0; i < profile->fact_count; i++)
        if (profile->facts[i].key == fact.key)
            return STATUS_OK;
    TRY(builder_reserve((void **)&profile->facts, profile->fact_count, &profile->builder->fact_capacity,
                        sizeof profile->facts[0]));
    profile->facts[profile->fact_count++] = fact;
    return STATUS_OK;
}

static enum status grow_entries(struct profile *profile) {
    size_t capacity = profile->builder->entry_capacity;
    TRY(builder_reserve((void **)&profile->entries, profile->entry_count, &capacity, sizeof profile->entries[0]));
    for (int i = 0; i < MEASURE_COUNT; i++) {
        if (profile->columns[i] == NULL)
            continue;
        uint64_t *grown = realloc(profile->columns[i], capacity * sizeof grown[0]);
        if (grown == NULL)
            return STATUS_FAILED;
        profile->columns[i] = grown;
    }
    profile->builder->entry_capacity = capacity;
    return STATUS_OK;
}

static enum status find_entry(struct profile *profile, uint32_t thread, uint32_t stack, size_t *entry) {
    struct digest key = digest_of_pair(thread, stack);
    uint32_t known = digest_map_get(&profile->builder->entries, key);
    if (known != 0) {
        *entry = known - 1;
        return STATUS_OK;
    }
    if (profile->entry_count == profile->builder->entry_capacity)
        TRY(grow_entries(profile));
    TRY(digest_map_set(&profile->builder->entries, key, (uint32_t)profile->entry_count + 1));
    *entry = profile->entry_count++;
    profile->entries[*entry] = (struct profile_entry){.thread = thread, .stack = stack};
    for (int i = 0; i < MEASURE_COUNT; i++)
        if (profile->columns[i] != NULL)
            profile->columns[i][*entry] = 0;
    return STATUS_OK;
}

enum status builder_take_measure(struct profile *profile, uint32_t process, enum measure measure) {
    profile->processes[process].taken |= UINT32_C(1) << measure;
    if (profile->columns[measure] != NULL)
        return STATUS_OK;
    profile->columns[measure] = calloc(profile->builder->entry_capacity + 1, sizeof(uint64_t));
    return profile->columns[measure] != NULL ? STATUS_OK : STATUS_FAILED;
}

static enum status add_to_entry(struct profile *profile, size_t entry, enum measure measure, uint64_t amount) {
    TRY(builder_take_measure(profile, profile->threads[profile->entries[entry].thread].process, measure));
    profile->columns[measure][entry] = saturating_add(profile->columns[measure][entry], amount);
    return STATUS_OK;
}

enum status builder_find_entry(struct profile *profile, uint32_t thread, uint32_t stack, enum measure measure,
                               size_t *entry) {
    TRY(find_entry(profile, thread, stack, entry));
    return add_to_entry(profile, *entry, measure, 0);
}

enum status profile_add_value(struct profile *profile, uint32_t thread, uint32_t stack, enum measure measure,
                              uint64_t amount) {
    size_t entry = 0;
    TRY(find_entry(profile, thread, stack, &entry));
    return add_to_entry(profile, entry, measure, amount);
}

/* A look at a thread that runs stands for CPU time, one at a thread that does not for waiting; a measure that could
 * have been seen and was not is a true 0. */
static enum status add_wall_parts(struct profile *profile, size_t entry, const struct capture_sample *sample) {
    TRY(add_to_entry(profile, entry, MEASURE_WALL_NS, sample->weight_ns));
    if (sample->run == CAPTURE_RUN_UNKNOWN)
        return STATUS_OK;
    bool is_running = sample->run == CAPTURE_RUNNING;
    TRY(add_to_entry(profile, entry, MEASURE_CPU_NS, is_running ? sample->weight_ns : 0));
    TRY(add_to_entry(profile, entry, MEASURE_WAIT_NS, is_running ? 0 : sample->weight_ns));
    if (sample->gil == CAPTURE_GIL_UNKNOWN)
        return STATUS_OK;
    bool is_gil_wait = !is_running && sample->gil == CAPTURE_GIL_WAITING;
    return add_to_entry(profile, entry, MEASURE_GIL_WAIT_NS, is_gil_wait ? sample->weight_ns : 0);
}

static enum status keep_sample(struct profile *profile, const struct capture_sample *sample) {
    TRY(builder_reserve((void **)&profile->samples, profile->sample_count, &profile->builder->sample_capacity,
                        sizeof profile->samples[0]));
    if (profile->sample_count > 0 && profile->samples[profile->sample_count - 1].time_ns > sample->time_ns)
        profile->builder->samples_unsorted = true;
    profile->samples[profile->sample_count++] = (struct profile_sample){
        .time_ns = sample->time_ns,
        .weight_ns = sample->weight_ns,
        .thread = sample->thread,
        .stack = sample->stack,
        .run = sample->run,
        .gil = sample->gil,
        .collecting = sample->collecting,
    };
    return STATUS_OK;
}

void builder_note_time(struct profile *profile, uint32_t process, uint64_t time_ns) {
    struct profile_process *known = &profile->processes[process];
    uint64_t elapsed_ns = time_ns > known->start_ns ? time_ns - known->start_ns : 0;
    known->elapsed_ns = elapsed_ns > known->elapsed_ns ? elapsed_ns : known->elapsed_ns;
    profile->elapsed_ns = time_ns > profile->elapsed_ns ? time_ns : profile->elapsed_ns;
}

void builder_note_look(struct profile *profile, uint32_t process, uint32_t stack, uint64_t time_ns) {
    struct profile_process *known = &profile->processes[process];
    if (profile->stacks[stack].has_python && time_ns > known->python_end_ns)
        known->python_end_ns = time_ns;
}

enum status builder_add_sample(struct profile *profile, const struct capture_sample *sample, bool keep, bool is_part) {
    size_t entry = 0;
    uint32_t process = profile->threads[sample->thread].process;
    TRY(find_entry(profile, sample->thread, sample->stack, &entry));
    TRY(add_to_entry(profile, entry, MEASURE_SAMPLES, is_part ? 0 : 1));
    if (profile->processes[process].mode == CAPTURE_MODE_CPU)
        TRY(add_to_entry(profile, entry, MEASURE_CPU_NS, sample->weight_ns));
    else
        TRY(add_wall_parts(profile, entry, sample));
    builder_note_time(profile, process, sample->time_ns);
    builder_note_look(profile, process, sample->stack, sample->time_ns);
    return keep ? keep_sample(profile, sample) : STATUS_OK;
}

enum status profile_add_sample(struct profile *profile, const struct capture_sample *sample, bool keep) {
    return builder_add_sample(profile, sample, keep, false);
}

static int compare_samples(const void *left, const void *right) {
    const struct profile_sample *a = left;
    const struct profile_sample *b = right;
    if (a->time_ns != b->time_ns)
        return a->time_ns < b->time_ns ? -1 : 1;
    return (a->thread > b->thread) - (a->thread < b->thread);
}

/* A process may have told of its libraries after the frame was made: of a capture that was added later, or after an
 * exec. */
static void classify_frames(struct profile *profile) {
    for (size_t i = 1; i < profile->frame_count; i++) {
        struct profile_frame *frame = &profile->frames[i];
        if (frame->kind == CAPTURE_FRAME_PYTHON && !frame->is_library)
            frame->is_library = library_has_frame(profile, frame);
    }
}

/* A process that was never seen to run took no CPU time, in none of its parts where others' has parts. */
static void finish_cpu(struct profile *profile) {
    static const enum measure TAKEN[] = {MEASURE_CPU_NS,        MEASURE_SAMPLES,       MEASURE_CPU_PYTHON_NS,
                                         MEASURE_CPU_NATIVE_NS, MEASURE_CPU_KERNEL_NS, MEASURE_WAIT_NS};
    for (uint32_t process = 0; process < profile->process_count; process++) {
        if (profile->processes[process].mode != CAPTURE_MODE_CPU ||
            profile_process_has(profile, process, MEASURE_CPU_NS))
            continue;
        for (size_t i = 0; i < sizeof TAKEN / sizeof TAKEN[0]; i++)
            if (profile->columns[TAKEN[i]] != NULL)
                profile->processes[process].taken |= UINT32_C(1) << TAKEN[i];
    }
}

void builder_finish(struct profile *profile) {
    classify_frames(profile);
    builder_finish_memory(profile);
    finish_cpu(profile);
    profile->counters = (struct capture_counters){0};
    for (size_t i = 0; i < profile->process_count; i++) {
        const struct capture_counters *of_one = &profile->processes[i].counters;
        profile->counters.taken = saturating_add(profile->counters.taken, of_one->taken);
        profile->counters.missed = saturating_add(profile->counters.missed, of_one->missed);
        profile->counters.inconsistent = saturating_add(profile->counters.inconsistent, of_one->inconsistent);
        profile->counters.errors = saturating_add(profile->counters.errors, of_one->errors);
    }
    profile->start_unix_ns = profile->process_count > 0 ? profile->processes[0].start_unix_ns : 0;
    if (profile->builder->samples_unsorted)
        qsort(profile->samples, profile->sample_count, sizeof profile->samples[0], compare_samples);
    profile->builder->samples_unsorted = false;
}
