#include "capture/reader.h"

#include "capture/format.h"
#include "capture_memory.h"
#include "sanitized.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { MAX_SAMPLES = 200000, SECOND_NS = 1000000000 };

/* What a capture told, with the names of stacks spelled out as "a;b;c". */
struct told {
    char *strings[4096];
    uint32_t frame_functions[4096];
    uint32_t parents[4096], frames[4096];
    uint32_t string_count, frame_count, stack_count;
    unsigned epochs, processes, threads, ended_threads, ended_processes;
    char thread_name[64];
    struct capture_process process;
    struct capture_counters counters;
    uint64_t cpu_ns;
    struct capture_sample *samples;
    char (*paths)[64];
    size_t sample_count;
    uint64_t event_amounts[CAPTURE_EVENT_VALUES];
    size_t event_count;
    char facts[256];
};

static void forget_strings(struct told *told) {
    for (uint32_t i = 1; i <= told->string_count; i++)
        free(told->strings[i]);
    told->string_count = told->frame_count = told->stack_count = 0;
}

static enum status on_epoch(void *context, uint32_t epoch) {
    struct told *told = context;
    (void)epoch;
    forget_strings(told);
    told->epochs++;
    return STATUS_OK;
}

static enum status on_fact(void *context, struct capture_text key, struct capture_text value) {
    struct told *told = context;
    (void)snprintf(told->facts, sizeof told->facts, "%.*s=%.*s", (int)key.size_bytes, key.bytes, (int)value.size_bytes,
                   value.bytes);
    return STATUS_OK;
}

static enum status on_string(void *context, uint32_t id, struct capture_text text) {
    struct told *told = context;
    assert_int_equal(id, ++told->string_count);
    told->strings[id] = strndup(text.bytes, text.size_bytes);
    return STATUS_OK;
}

static enum status on_frame(void *context, uint32_t id, const struct capture_frame *frame) {
    struct told *told = context;
    assert_int_equal(id, ++told->frame_count);
    assert_in_range(frame->function, 0, told->string_count);
    told->frame_functions[id] = frame->function;
    return STATUS_OK;
}

static enum status on_stack(void *context, uint32_t id, uint32_t parent, uint32_t frame) {
    struct told *told = context;
    assert_int_equal(id, ++told->stack_count);
    assert_true(parent < id);
    assert_in_range(frame, 1, told->frame_count);
    told->parents[id] = parent;
    told->frames[id] = frame;
    return STATUS_OK;
}

static enum status on_process(void *context, const struct capture_process *process) {
    struct told *told = context;
    told->processes++;
    told->process = *process;
    return STATUS_OK;
}

static enum status on_process_end(void *context, uint32_t process, uint64_t time_ns, int32_t wait_status) {
    struct told *told = context;
    (void)process;
    (void)time_ns;
    assert_int_equal(wait_status, -1);
    told->ended_processes++;
    return STATUS_OK;
}

static enum status on_counters(void *context, uint32_t process, const struct capture_counters *counters) {
    (void)process;
    ((struct told *)context)->counters = *counters;
    return STATUS_OK;
}

static enum status on_thread(void *context, uint32_t id, const struct capture_thread *thread) {
    struct told *told = context;
    (void)id;
    told->threads++;
    (void)snprintf(told->thread_name, sizeof told->thread_name, "%.*s", (int)thread->name.size_bytes,
                   thread->name.bytes);
    return STATUS_OK;
}

static enum status on_thread_cpu(void *context, uint32_t id, uint64_t cpu_ns) {
    (void)id;
    ((struct told *)context)->cpu_ns = cpu_ns;
    return STATUS_OK;
}

static enum status on_thread_end(void *context, uint32_t id, uint64_t time_ns) {
    (void)id;
    (void)time_ns;
    ((struct told *)context)->ended_threads++;
    return STATUS_OK;
}

static void spell_stack(const struct told *told, uint32_t stack, char *path, size_t capacity) {
    size_t used = 0;
    if (stack == 0)
        return;
    spell_stack(told, told->parents[stack], path, capacity);
    used = strlen(path);
    (void)snprintf(path + used, capacity - used, "%s%s", used > 0 ? ";" : "",
                   told->strings[told->frame_functions[told->frames[stack]]]);
}

static enum status on_sample(void *context, const struct capture_sample *sample) {
    struct told *told = context;
    assert_true(told->sample_count < MAX_SAMPLES);
    told->samples[told->sample_count] = *sample;
    told->paths[told->sample_count][0] = '\0';
    spell_stack(told, sample->stack, told->paths[told->sample_count], sizeof told->paths[0]);
    told->sample_count++;
    return STATUS_OK;
}

static enum status on_event(void *context, const struct capture_event *event) {
    struct told *told = context;
    for (size_t i = 0; i < event->value_count; i++)
        told->event_amounts[event->values[i].measure] += event->values[i].amount;
    told->event_count++;
    return STATUS_OK;
}

static struct capture_visitor recorder(struct told *told) {
    return (struct capture_visitor){
        .context = told,
        .epoch = on_epoch,
        .fact = on_fact,
        .string = on_string,
        .frame = on_frame,
        .stack = on_stack,
        .process = on_process,
        .process_end = on_process_end,
        .counters = on_counters,
        .thread = on_thread,
        .thread_cpu = on_thread_cpu,
        .thread_end = on_thread_end,
        .sample = on_sample,
        .event = on_event,
    };
}

static int set_up(void **state) {
    struct told *told = calloc(1, sizeof *told);
    told->samples = calloc(MAX_SAMPLES, sizeof told->samples[0]);
    told->paths = calloc(MAX_SAMPLES, sizeof told->paths[0]);
    *state = told;
    return 0;
}

static int tear_down(void **state) {
    struct told *told = *state;
    forget_strings(told);
    free(told->samples);
    free(told->paths);
    free(told);
    return 0;
}

static enum status read_back(struct capture_memory *memory, struct told *told, struct capture_damage *damage,
                             struct error *error) {
    struct capture_visitor visitor = recorder(told);
    forget_strings(told);
    told->sample_count = told->epochs = 0;
    return capture_read_bytes(memory->bytes, memory->size_bytes, &visitor, damage, error);
}

static uint32_t chain(struct capture_writer *writer, unsigned leaf) {
    char name[16];
    (void)snprintf(name, sizeof name, "f%u", leaf);
    return memory_stack(writer, "/x.py", (const char *const[]){"main", "work", name}, (const int32_t[]){1, 2, 3}, 3);
}

static void write_at(struct capture_writer *writer, uint32_t stack, uint64_t time_ns, uint64_t weight_ns) {
    struct capture_sample sample = {.thread = 1,
                                    .stack = stack,
                                    .time_ns = time_ns,
                                    .weight_ns = weight_ns,
                                    .run = CAPTURE_RUNNING,
                                    .gil = CAPTURE_GIL_HELD};
    assert_int_equal(capture_write_sample(writer, &sample), STATUS_OK);
}

static void test_everything_comes_back(void **state) {
    struct told *told = *state;
    struct capture_memory memory;
    struct capture_writer *writer = memory_writer_open(&memory, NULL);
    struct capture_thread renamed = {.native_id = 42, .interpreter = -1, .name = {"worker", 6}};
    struct capture_value values[] = {{CAPTURE_MEASURE_ALLOC_BYTES, UINT64_MAX}, {CAPTURE_MEASURE_ALLOC_COUNT, 3}};
    struct capture_event event = {.thread = 1, .time_ns = 6 * (uint64_t)SECOND_NS, .values = values, .value_count = 2};
    struct capture_damage damage;
    event.stack = chain(writer, 7);
    assert_int_equal(capture_write_fact(writer, "strobe", "0.1"), STATUS_OK);
    write_at(writer, event.stack, 5000001000, 1000);
    write_at(writer, 0, 5000002000, 77000);
    struct capture_sample waiting = {.thread = 1,
                                     .stack = event.stack,
                                     .time_ns = 5000001000,
                                     .weight_ns = 0,
                                     .run = CAPTURE_IDLE,
                                     .gil = CAPTURE_GIL_WAITING,
                                     .collecting = true};
    assert_int_equal(capture_write_sample(writer, &waiting), STATUS_OK);
    assert_int_equal(capture_write_event(writer, &event), STATUS_OK);
    assert_int_equal(capture_update_thread(writer, 1, &renamed), STATUS_OK);
    assert_int_equal(capture_write_thread_cpu(writer, 1, 123456789), STATUS_OK);
    assert_int_equal(capture_write_counters(writer, 0, &(struct capture_counters){3, 2, 1, 4}), STATUS_OK);
    assert_int_equal(capture_end_process(writer, 0, 7 * (uint64_t)SECOND_NS, -1), STATUS_OK);
    assert_int_equal(capture_writer_close(writer, NULL), STATUS_OK);
    memory_take(&memory);

    assert_int_equal(read_back(&memory, told, &damage, NULL), STATUS_OK);
    assert_true(damage.ended);
    assert_int_equal(told->sample_count, 3);
    assert_string_equal(told->paths[0], "main;work;f7");
    assert_string_equal(told->paths[1], "");
    assert_int_equal(told->samples[0].time_ns, 5000001000);
    assert_int_equal(told->samples[0].weight_ns, 1000);
    assert_int_equal(told->samples[1].weight_ns, 77000);
    assert_int_equal(told->samples[2].time_ns, 5000001000);
    assert_int_equal(told->samples[2].weight_ns, 0);
    assert_int_equal(told->samples[2].run, CAPTURE_IDLE);
    assert_int_equal(told->samples[2].gil, CAPTURE_GIL_WAITING);
    assert_true(told->samples[2].collecting);
    assert_true(told->event_amounts[CAPTURE_MEASURE_ALLOC_BYTES] == UINT64_MAX);
    assert_int_equal(told->event_amounts[CAPTURE_MEASURE_ALLOC_COUNT], 3);
    assert_string_equal(told->thread_name, "worker");
    assert_int_equal(told->cpu_ns, 123456789);
    assert_int_equal(told->counters.errors, 4);
    assert_int_equal(told->ended_threads, 1);
    assert_int_equal(told->ended_processes, 1);
    assert_int_equal(told->process.pid, 42);
    assert_string_equal(told->facts, "strobe=0.1");
    memory_release(&memory);
}

static enum status keep_frame(void *context, uint32_t id, const struct capture_frame *frame) {
    (void)id;
    *(struct capture_frame *)context = *frame;
    return STATUS_OK;
}

/* co_firstlineno may be any int. */
static void test_a_position_may_be_the_largest_number(void **state) {
    (void)state;
    struct capture_memory memory;
    struct capture_writer *writer = memory_writer_open(&memory, NULL);
    struct capture_frame frame = {.line = INT32_MAX, .end_line = INT32_MIN, .column = -1, .first_line = INT32_MAX};
    struct capture_frame told = {0};
    const struct capture_visitor visitor = {.context = &told, .frame = keep_frame};
    uint32_t id = 0;
    assert_int_equal(capture_intern_frame(writer, &frame, &id), STATUS_OK);
    assert_int_equal(capture_writer_close(writer, NULL), STATUS_OK);
    memory_take(&memory);
    assert_int_equal(capture_read_bytes(memory.bytes, memory.size_bytes, &visitor, NULL, NULL), STATUS_OK);
    assert_int_equal(told.line, INT32_MAX);
    assert_int_equal(told.end_line, -1);
    assert_int_equal(told.first_line, INT32_MAX);
    memory_release(&memory);
}

/* 1 kHz with the schedule's jitter (a quarter of the period either way) over a program of 50 stacks that changes its
 * stack in half of the looks; the generator is fixed, so the size is always the same. */
static void test_a_sample_takes_at_most_two_bytes(void **state) {
    struct told *told = *state;
    struct capture_memory memory;
    struct capture_writer_options options = {.tick_ns = capture_tick_ns(1000)};
    struct capture_writer *writer = memory_writer_open(&memory, &options);
    enum { LOOKS = 100000, PERIOD_NS = 1000000 };
    uint32_t random = 1;
    uint32_t stack = chain(writer, 0);
    uint64_t previous_ns = 5000000000;
    uint64_t weight_ns = 0;
    for (unsigned i = 1; i <= LOOKS; i++) {
        random = random * 1664525 + 1013904223;
        uint64_t now_ns = 5000000000 + (uint64_t)i * PERIOD_NS + (random >> 8) % (PERIOD_NS / 2);
        if (random >> 31)
            stack = chain(writer, (random >> 16) % 50);
        write_at(writer, stack, now_ns, now_ns - previous_ns);
        weight_ns += now_ns - previous_ns;
        previous_ns = now_ns;
    }
    assert_int_equal(capture_writer_close(writer, NULL), STATUS_OK);
    memory_take(&memory);
    print_message("# %.2f bytes a sample\n", (double)memory.size_bytes / LOOKS);
    assert_true(memory.size_bytes <= 2 * (size_t)LOOKS);

    /* And nothing is lost by it but what is below a tick. */
    assert_int_equal(read_back(&memory, told, NULL, NULL), STATUS_OK);
    assert_int_equal(told->sample_count, LOOKS);
    uint64_t read_ns = 0;
    for (size_t i = 0; i < told->sample_count; i++)
        read_ns += told->samples[i].weight_ns;
    assert_in_range(read_ns, weight_ns - 2 * options.tick_ns, weight_ns + 2 * options.tick_ns);
    memory_release(&memory);
}

static void test_many_threads_in_turn_stay_small(void **state) {
    struct told *told = *state;
    struct capture_memory memory;
    struct capture_writer_options options = {.tick_ns = capture_tick_ns(100)};
    struct capture_writer *writer = memory_writer_open(&memory, &options);
    enum { THREADS = 100, LOOKS = 1000, PERIOD_NS = 10000000 };
    uint32_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(capture_add_thread(writer, &(struct capture_thread){.native_id = i}, &threads[i]), STATUS_OK);
    for (unsigned look = 1; look <= LOOKS; look++)
        for (unsigned i = 0; i < THREADS; i++) {
            struct capture_sample sample = {.thread = threads[i],
                                            .stack = chain(writer, i % 7),
                                            .time_ns = 5000000000 + (uint64_t)look * PERIOD_NS,
                                            .weight_ns = PERIOD_NS,
                                            .run = CAPTURE_IDLE};
            assert_int_equal(capture_write_sample(writer, &sample), STATUS_OK);
        }
    assert_int_equal(capture_writer_close(writer, NULL), STATUS_OK);
    memory_take(&memory);
    print_message("# %.3f bytes a sample\n", (double)memory.size_bytes / (THREADS * LOOKS));
    assert_true(memory.size_bytes <= (size_t)THREADS * LOOKS / 5);
    assert_int_equal(read_back(&memory, told, NULL, NULL), STATUS_OK);
    assert_int_equal(told->sample_count, THREADS * LOOKS);
    for (size_t i = 0; i < told->sample_count; i++) {
        assert_int_equal(told->samples[i].thread, threads[i % THREADS]);
        assert_int_equal(told->samples[i].weight_ns, PERIOD_NS);
    }
    memory_release(&memory);
}

/* One sample a chunk, so that damage has something to hit. */
static struct capture_writer *write_chunks(struct capture_memory *memory, unsigned count, uint64_t *sizes) {
    struct capture_writer_options options = {.flush_period_ns = 1, .chunk_bytes = 1};
    struct capture_writer *writer = memory_writer_open(memory, &options);
    for (unsigned i = 0; i < count; i++) {
        write_at(writer, chain(writer, i), 5000000000 + (uint64_t)i * 1000000, 1000000);
        assert_int_equal(capture_writer_flush(writer, UINT64_MAX), STATUS_OK);
        sizes[i] = capture_writer_size_bytes(writer);
    }
    return writer;
}

static void test_a_cut_file_loses_what_was_cut(void **state) {
    struct told *told = *state;
    struct capture_memory memory;
    uint64_t sizes[10];
    struct capture_writer *writer = write_chunks(&memory, 10, sizes);
    assert_int_equal(capture_writer_close(writer, NULL), STATUS_OK);
    memory_take(&memory);
    size_t whole_bytes = memory.size_bytes;
    for (size_t cut = CAPTURE_FILE_HEADER_BYTES; cut < whole_bytes; cut++) {
        struct capture_damage damage;
        struct error error = {0};
        size_t expected = 0;
        while (expected < 10 && sizes[expected] <= cut)
            expected++;
        memory.size_bytes = cut;
        assert_int_equal(read_back(&memory, told, &damage, &error), STATUS_DAMAGED);
        assert_int_equal(told->sample_count, expected);
        assert_false(damage.ended);
        assert_non_null(strstr(error.text, "has no end"));
    }
    memory_release(&memory);
}

static void test_a_damaged_byte_costs_its_chunk(void **state) {
    struct told *told = *state;
    struct capture_memory memory;
    uint64_t sizes[10];
    struct capture_writer *writer = write_chunks(&memory, 10, sizes);
    /* Stacks that the damaged chunk did not define. */
    write_at(writer, chain(writer, 0), 5100000000, 1000000);
    assert_int_equal(capture_writer_close(writer, NULL), STATUS_OK);
    memory_take(&memory);
    for (size_t at = sizes[3]; at < sizes[4]; at++) {
        struct capture_damage damage;
        memory.bytes[at] ^= 0x55;
        assert_int_equal(read_back(&memory, told, &damage, NULL), STATUS_DAMAGED);
        /* Sample 4 is in the chunk, the others use nothing of it but what they share: main;work is in the first. */
        assert_int_equal(told->sample_count, 10);
        assert_string_equal(told->paths[3], "main;work;f3");
        assert_string_equal(told->paths[4], "main;work;f5");
        assert_string_equal(told->paths[9], "main;work;f0");
        assert_true(damage.ended);
        assert_int_equal(damage.lost_chunks, 1);
        assert_int_equal(damage.lost_bytes, sizes[4] - sizes[3]);
        memory.bytes[at] ^= 0x55;
    }
    memory_release(&memory);
}

static void test_records_that_speak_of_what_is_lost_are_counted(void **state) {
    struct told *told = *state;
    struct capture_memory memory;
    uint64_t sizes[3];
    struct capture_writer *writer = write_chunks(&memory, 3, sizes);
    write_at(writer, chain(writer, 1), 5100000000, 1000000);
    write_at(writer, chain(writer, 2), 5200000000, 1000000);
    assert_int_equal(capture_writer_close(writer, NULL), STATUS_OK);
    memory_take(&memory);
    struct capture_damage damage;
    memory.bytes[sizes[1] - 1] ^= 1;
    assert_int_equal(read_back(&memory, told, &damage, NULL), STATUS_DAMAGED);
    assert_int_equal(told->sample_count, 3); /* f0, f2, f2: f1's stack went with its chunk */
    assert_string_equal(told->paths[2], "main;work;f2");
    assert_int_equal(damage.lost_records, 1);
    memory_release(&memory);
}

static void test_an_epoch_bounds_the_tables(void **state) {
    struct told *told = *state;
    struct capture_memory memory;
    struct capture_writer_options options = {.max_strings = 50, .max_frames = 50, .max_stacks = 50};
    struct capture_writer *writer = memory_writer_open(&memory, &options);
    enum { LOOKS = 1000 };
    for (unsigned i = 0; i < LOOKS; i++)
        write_at(writer, chain(writer, i), 5000000000 + (uint64_t)i * 1000000, 1000000);
    assert_in_range(capture_writer_epoch(writer), LOOKS / 50 - 2, LOOKS / 40);
    assert_int_equal(capture_writer_close(writer, NULL), STATUS_OK);
    memory_take(&memory);
    assert_int_equal(read_back(&memory, told, NULL, NULL), STATUS_OK);
    assert_int_equal(told->sample_count, LOOKS);
    for (unsigned i = 0; i < LOOKS; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "main;work;f%u", i);
        assert_string_equal(told->paths[i], path);
    }
    /* Each epoch says again who there is, so that one whose beginning is lost can be read. */
    assert_int_equal(told->processes, told->epochs);
    assert_int_equal(told->threads, told->epochs);
    memory_release(&memory);
}

static size_t resident_bytes(void) {
    unsigned long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "re");
    assert_non_null(statm);
    assert_int_equal(fscanf(statm, "%*u %lu", &pages), 1);
    (void)fclose(statm);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* However long it samples, and however much it sees that it has not seen before: half an hour of a program that does
 * nothing twice. */
static void test_the_writers_memory_is_bounded(void **state) {
    (void)state;
    enum { LOOKS = 800000, GROWTH_BYTES = 2 << 20 };
    struct capture_writer *writer = NULL;
    uint32_t thread = 0;
    size_t settled_bytes = 0;
    assert_int_equal(capture_writer_open("/dev/null", NULL, &writer, NULL), STATUS_OK);
    assert_int_equal(capture_add_process(writer, &(struct capture_process){.pid = 1}), STATUS_OK);
    assert_int_equal(capture_add_thread(writer, &(struct capture_thread){.native_id = 1}, &thread), STATUS_OK);
    for (unsigned i = 0; i < LOOKS; i++) {
        write_at(writer, chain(writer, i), 5000000000 + (uint64_t)i * 2000000, 2000000);
        if (i == LOOKS / 3)
            settled_bytes = resident_bytes();
    }
    size_t end_bytes = resident_bytes();
    assert_true(capture_writer_epoch(writer) >= LOOKS / 70000);
    assert_int_equal(capture_writer_close(writer, NULL), STATUS_OK);
    print_message("# %zu KiB, %zu KiB\n", settled_bytes >> 10, end_bytes >> 10);
    /* What AddressSanitizer keeps of what was freed is not the writer's. */
    if (!HAS_ADDRESS_SANITIZER)
        assert_true(end_bytes <= settled_bytes + GROWTH_BYTES);
}

static void test_a_table_has_an_end_within_an_epoch_too(void **state) {
    (void)state;
    struct capture_memory memory;
    struct capture_writer_options options = {.max_stacks = 50};
    struct capture_writer *writer = memory_writer_open(&memory, &options);
    struct capture_frame frame = {.line = 1};
    uint32_t id = 0;
    uint32_t stack = 0;
    uint32_t depth = 0;
    assert_int_equal(capture_intern_frame(writer, &frame, &id), STATUS_OK);
    while (capture_intern_stack(writer, stack, id, &id) == STATUS_OK && depth < 1000) {
        stack = id;
        id = 1;
        depth++;
    }
    assert_in_range(depth, 50, 101);
    write_at(writer, stack, 5000000000, 1);
    assert_int_equal(capture_writer_epoch(writer), 1);
    assert_int_equal(capture_writer_close(writer, NULL), STATUS_OK);
    memory_release(&memory);
}

static void test_ids_that_were_never_given_are_refused(void **state) {
    (void)state;
    struct capture_memory memory;
    struct capture_writer *writer = memory_writer_open(&memory, NULL);
    struct capture_sample sample = {.thread = 2};
    uint32_t id = 0;
    assert_int_equal(capture_write_sample(writer, &sample), STATUS_NOT_FOUND);
    sample = (struct capture_sample){.thread = 1, .stack = 1};
    assert_int_equal(capture_write_sample(writer, &sample), STATUS_NOT_FOUND);
    assert_int_equal(capture_intern_stack(writer, 0, 1, &id), STATUS_NOT_FOUND);
    assert_int_equal(capture_intern_frame(writer, &(struct capture_frame){.file = 9}, &id), STATUS_NOT_FOUND);
    assert_int_equal(capture_add_thread(writer, &(struct capture_thread){.process = 3}, &id), STATUS_NOT_FOUND);
    assert_int_equal(capture_end_thread(writer, 1, 0), STATUS_OK);
    assert_int_equal(capture_write_thread_cpu(writer, 1, 1), STATUS_NOT_FOUND);
    assert_int_equal(capture_writer_close(writer, NULL), STATUS_OK);
    memory_release(&memory);
}

static void test_a_full_disk_ends_it_with_a_whole_chunk(void **state) {
    (void)state;
    struct capture_writer *writer = NULL;
    struct error error = {0};
    /* Every write to it fails with ENOSPC. */
    assert_int_equal(capture_writer_open("/dev/full", NULL, &writer, &error), STATUS_FAILED);
    assert_non_null(strstr(error.text, "No space left"));
    assert_int_equal(capture_writer_open("/no/such/folder/x.strobe", NULL, &writer, &error), STATUS_FAILED);
}

/* A disk that fills up in the middle, as far as the writer can tell: files of this process end at 20 kB. */
static void test_a_file_has_one_writer_at_a_time(void **state) {
    (void)state;
    char path[] = "/tmp/strobe-test-capture-XXXXXX";
    struct capture_writer *first = NULL, *second = NULL;
    struct error error = {0};
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    assert_int_equal(capture_writer_open(path, NULL, &first, &error), STATUS_OK);
    assert_int_equal(capture_writer_open(path, NULL, &second, &error), STATUS_FAILED);
    assert_non_null(strstr(error.text, "another strobe is writing it"));
    assert_int_equal(capture_writer_close(first, &error), STATUS_OK);
    assert_int_equal(capture_writer_open(path, NULL, &second, &error), STATUS_OK);
    capture_writer_abandon(second);
    (void)close(descriptor);
    (void)unlink(path);
}

static void test_what_was_written_before_the_disk_was_full_stays(void **state) {
    struct told *told = *state;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    (void)signal(SIGXFSZ, SIG_IGN);
    for (int in_background = 0; in_background < 2; in_background++) {
        struct capture_writer_options options = {.chunk_bytes = 500, .in_background = in_background};
        struct capture_damage damage;
        struct capture_memory memory;
        struct error error = {0};
        struct capture_writer *writer = memory_writer_open(&memory, &options);
        enum status status = STATUS_OK;
        unsigned written = 0;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){20000, before.rlim_max}), 0);
        for (; status == STATUS_OK && written < 1000000; written++) {
            struct capture_sample sample = {.thread = 1, .time_ns = (written + 5000000) * UINT64_C(1001)};
            sample.weight_ns = sample.time_ns % 9999;
            status = capture_write_sample(writer, &sample);
        }
        assert_int_equal(status, STATUS_FAILED);
        assert_int_equal(capture_write_sample(writer, &(struct capture_sample){.thread = 1}), STATUS_FAILED);
        assert_non_null(strstr(capture_writer_error(writer)->text, "too large"));
        assert_int_equal(capture_writer_close(writer, &error), STATUS_FAILED);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        memory_take(&memory);
        assert_int_equal(read_back(&memory, told, &damage, NULL), STATUS_DAMAGED);
        assert_int_equal(damage.lost_bytes, 0);
        assert_in_range(told->sample_count, written - 3 * 500, written);
        memory_release(&memory);
    }
}

static void test_a_thread_writes_the_same_file(void **state) {
    (void)state;
    struct capture_memory memories[2];
    for (int in_background = 0; in_background < 2; in_background++) {
        struct capture_writer_options options = {.chunk_bytes = 300, .max_stacks = 50, .in_background = in_background};
        struct capture_writer *writer = memory_writer_open(&memories[in_background], &options);
        for (unsigned i = 0; i < 10000; i++)
            write_at(writer, chain(writer, i % 60), 5000000000 + (uint64_t)i * 1000000, 1000000);
        assert_int_equal(capture_writer_close(writer, NULL), STATUS_OK);
        memory_take(&memories[in_background]);
    }
    assert_int_equal(memories[0].size_bytes, memories[1].size_bytes);
    assert_memory_equal(memories[0].bytes, memories[1].bytes, memories[0].size_bytes);
    memory_release(&memories[0]);
    memory_release(&memories[1]);
}

static void test_a_forked_child_leaves_the_file_alone(void **state) {
    struct told *told = *state;
    struct capture_memory memory;
    struct capture_writer_options options = {.in_background = true};
    struct capture_writer *writer = memory_writer_open(&memory, &options);
    int wait_status = 0;
    write_at(writer, chain(writer, 1), 5000000000, 1000000);
    pid_t child = fork();
    if (child == 0) {
        capture_writer_abandon(writer);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &wait_status, 0), child);
    assert_int_equal(wait_status, 0);
    write_at(writer, chain(writer, 2), 5001000000, 1000000);
    assert_int_equal(capture_writer_close(writer, NULL), STATUS_OK);
    memory_take(&memory);
    assert_int_equal(read_back(&memory, told, NULL, NULL), STATUS_OK);
    assert_int_equal(told->sample_count, 2);
    memory_release(&memory);
}

static void test_samples_are_written_within_the_flush_period(void **state) {
    struct told *told = *state;
    struct capture_memory memory;
    struct capture_writer *writer = memory_writer_open(&memory, NULL);
    for (unsigned i = 0; i < 100; i++)
        write_at(writer, chain(writer, 0), 5000000000 + (uint64_t)i * 50000000, 50000000); /* 20 Hz, 4.95 s */
    memory_take(&memory);
    capture_writer_abandon(writer); /* as kill -9 */
    assert_int_equal(read_back(&memory, told, NULL, NULL), STATUS_DAMAGED);
    assert_in_range(told->sample_count, 79, 100);
    memory_release(&memory);
}

static void test_other_files_are_no_captures(void **state) {
    struct told *told = *state;
    struct capture_visitor visitor = recorder(told);
    struct error error = {0};
    uint8_t later[CAPTURE_FILE_HEADER_BYTES] = CAPTURE_FILE_MAGIC "\x02";
    assert_int_equal(capture_read("/dev/null", &visitor, NULL, &error), STATUS_FAILED);
    assert_int_equal(capture_read("/no/such/file", &visitor, NULL, &error), STATUS_FAILED);
    assert_int_equal(capture_read("/proc/self/exe", &visitor, NULL, &error), STATUS_DAMAGED);
    assert_non_null(strstr(error.text, "not a strobe capture"));
    char folder[] = "/tmp/test_capture.XXXXXX", pipe_path[64];
    assert_non_null(mkdtemp(folder));
    (void)snprintf(pipe_path, sizeof pipe_path, "%s/pipe", folder);
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    assert_int_equal(capture_read(pipe_path, &visitor, NULL, &error), STATUS_FAILED);
    assert_int_equal(unlink(pipe_path), 0);
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(capture_read_bytes(later, sizeof later, &visitor, NULL, &error), STATUS_DAMAGED);
    assert_non_null(strstr(error.text, "format 2.0"));
}

static void test_ticks_suit_the_rate(void **state) {
    (void)state;
    assert_int_equal(capture_tick_ns(1), 10000000);
    assert_int_equal(capture_tick_ns(100), 200000);
    assert_int_equal(capture_tick_ns(1000), 20000);
    assert_int_equal(capture_tick_ns(10000), 2000);
    assert_int_equal(capture_tick_ns(1e6), 20);
    assert_int_equal(capture_tick_ns(1e9), 1);
    assert_int_equal(capture_tick_ns(0), 1000);
}

static void test_numbers_survive_their_coding(void **state) {
    (void)state;
    const int64_t numbers[] = {0, -1, 1, 63, -64, INT64_MAX, INT64_MIN};
    uint8_t bytes[VARINT_MAX_BYTES];
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        assert_true(zigzag_decode(zigzag_encode(numbers[i])) == numbers[i]);
    assert_int_equal(varint_put(bytes, UINT64_MAX), VARINT_MAX_BYTES);
    assert_int_equal(varint_put(bytes, 127), 1);
    assert_int_equal(varint_put(bytes, 300), 2);
    assert_int_equal(bytes[0], 0xac);
    assert_int_equal(bytes[1], 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_everything_comes_back, set_up, tear_down),
        cmocka_unit_test(test_a_position_may_be_the_largest_number),
        cmocka_unit_test_setup_teardown(test_a_sample_takes_at_most_two_bytes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_many_threads_in_turn_stay_small, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_cut_file_loses_what_was_cut, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_damaged_byte_costs_its_chunk, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_records_that_speak_of_what_is_lost_are_counted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_epoch_bounds_the_tables, set_up, tear_down),
        cmocka_unit_test(test_the_writers_memory_is_bounded),
        cmocka_unit_test(test_a_table_has_an_end_within_an_epoch_too),
        cmocka_unit_test(test_ids_that_were_never_given_are_refused),
        cmocka_unit_test(test_a_full_disk_ends_it_with_a_whole_chunk),
        cmocka_unit_test(test_a_file_has_one_writer_at_a_time),
        cmocka_unit_test_setup_teardown(test_what_was_written_before_the_disk_was_full_stays, set_up, tear_down),
        cmocka_unit_test(test_a_thread_writes_the_same_file),
        cmocka_unit_test_setup_teardown(test_a_forked_child_leaves_the_file_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_samples_are_written_within_the_flush_period, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_other_files_are_no_captures, set_up, tear_down),
        cmocka_unit_test(test_ticks_suit_the_rate),
        cmocka_unit_test(test_numbers_survive_their_coding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
