#include "profile/build.h"

#include "capture_memory.h"
#include "profile/builder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct capture_text text(const char *characters) {
    return (struct capture_text){characters, strlen(characters)};
}

static bool is_library(struct profile *profile, const char *file) {
    struct profile_frame_key key = {.function = text("f"), .file = text(file), .line = 1};
    uint32_t frame = 0;
    assert_int_equal(profile_intern_frame(profile, &key, &frame), STATUS_OK);
    return profile->frames[frame].is_library;
}

static void test_library_code_is_told_by_its_path(void **state) {
    (void)state;
    struct profile *profile = profile_new();
    struct capture_text libraries[] = {text("/opt/ours/"), text("")};
    struct capture_process process = {.libraries = libraries, .library_count = 2};
    uint32_t index = 0;
    assert_int_equal(profile_append_process(profile, &process, &index), STATUS_OK);
    /* Each frame is held against each library once, however many processes told of it. */
    assert_int_equal(profile_append_process(profile, &process, &index), STATUS_OK);
    assert_int_equal(profile->builder->library_count, 2);
    assert_true(is_library(profile, "/usr/lib/python3.11/json/__init__.py"));
    assert_true(is_library(profile, "/opt/py/lib64/python3.13t/threading.py"));
    assert_true(is_library(profile, "/root/.pyenv/versions/3.8.18/lib/python3.8/os.py"));
    assert_true(is_library(profile, "/home/u/venv/lib/python3.12/site-packages/numpy/core.py"));
    assert_true(is_library(profile, "/usr/lib/python3/dist-packages/yaml.py"));
    assert_true(is_library(profile, "/app/python313.zip/os.py"));
    assert_true(is_library(profile, "<frozen importlib._bootstrap>"));
    assert_true(is_library(profile, "/opt/ours/x.py"));
    assert_true(is_library(profile, "/opt/ours"));
    assert_true(is_library(profile, "/home/u/.pex/installed_wheels/0/click-8.1-py3-none-any.whl/click/core.py"));
    assert_true(is_library(profile, "/srv/old-1.0-py3.8.egg/old/__init__.py"));
    assert_true(is_library(profile, ""));
    assert_false(is_library(profile, "/opt/oursNot/x.py"));
    assert_false(is_library(profile, "/home/u/app.py"));
    assert_false(is_library(profile, "/home/u/lib/app.py"));
    assert_false(is_library(profile, "/home/u/lib/python3.notes/app.py"));
    assert_false(is_library(profile, "/home/u/python3/app.py"));
    assert_false(is_library(profile, "<string>"));
    assert_false(is_library(profile, "relative.py"));
    profile_free(profile);
}

static bool is_library_method(struct profile *profile, int32_t line) {
    struct profile_frame_key key = {.function = text("__eq__"), .file = text("<string>"), .line = line};
    uint32_t frame = 0;
    assert_int_equal(profile_intern_frame(profile, &key, &frame), STATUS_OK);
    return profile->frames[frame].is_library;
}

static void append_process(struct profile *profile, int32_t pid, int32_t parent_pid, const char *option) {
    const struct capture_text command[] = {text("python3"), text(option)};
    struct capture_process process = {.pid = pid, .parent_pid = parent_pid, .command = command, .command_count = 2};
    uint32_t index = 0;
    assert_int_equal(profile_append_process(profile, &process, &index), STATUS_OK);
}

/* Each started the next one with code in a string. A look at all of them for each, for each frame, would be 10^11
 * steps. */
static void test_a_string_is_the_users_where_the_user_runs_it(void **state) {
    (void)state;
    enum { PROCESSES = 20000, FRAMES = 3000 };
    struct profile *profile = profile_new();
    append_process(profile, 1, 0, "x.py");
    for (int32_t pid = 2; pid <= PROCESSES; pid++)
        append_process(profile, pid, pid - 1, "-c");
    for (int32_t line = 1; line <= FRAMES; line++)
        assert_true(is_library_method(profile, line));
    append_process(profile, PROCESSES + 2, PROCESSES + 1, "-c");
    assert_false(is_library_method(profile, FRAMES + 1));
    profile_free(profile);
}

static void test_equal_things_are_one(void **state) {
    (void)state;
    struct profile *profile = profile_new();
    struct profile_frame_key key = {.function = text("f"), .file = text("/x.py"), .line = 3, .column = -1};
    const char *texts[3];
    uint32_t ids[4];
    assert_int_equal(profile_intern_text(profile, text("\xff\n"), &texts[0]), STATUS_OK);
    assert_int_equal(profile_intern_text(profile, text("f"), &texts[1]), STATUS_OK);
    assert_int_equal(profile_intern_frame(profile, &key, &ids[0]), STATUS_OK);
    assert_int_equal(profile_intern_frame(profile, &key, &ids[1]), STATUS_OK);
    key.line = 4;
    assert_int_equal(profile_intern_frame(profile, &key, &ids[2]), STATUS_OK);
    assert_string_equal(texts[0], "\\xff\\x0a");
    assert_ptr_equal(profile->frames[ids[0]].function, texts[1]);
    assert_ptr_equal(profile->frames[ids[0]].qualname, texts[1]);
    assert_int_equal(ids[0], 1);
    assert_int_equal(ids[1], 1);
    assert_int_equal(ids[2], 2);
    assert_int_equal(profile_intern_stack(profile, 0, 1, &ids[0]), STATUS_OK);
    assert_int_equal(profile_intern_stack(profile, ids[0], 1, &ids[1]), STATUS_OK);
    assert_int_equal(profile_intern_stack(profile, 0, 1, &ids[2]), STATUS_OK);
    assert_int_equal(ids[2], ids[0]);
    assert_int_equal(profile->stacks[ids[1]].depth, 2);
    assert_int_equal(profile->stacks[ids[1]].parent, ids[0]);
    profile_free(profile);
}

static void add(struct profile *profile, uint32_t stack, enum capture_run run, enum capture_gil gil,
                uint64_t weight_ns) {
    struct capture_sample sample = {.stack = stack, .time_ns = 10, .weight_ns = weight_ns, .run = run, .gil = gil};
    assert_int_equal(profile_add_sample(profile, &sample, false), STATUS_OK);
}

static struct profile *one_thread(enum capture_mode mode) {
    struct profile *profile = profile_new();
    uint32_t index = 0;
    assert_int_equal(profile_append_process(profile, &(struct capture_process){.mode = mode}, &index), STATUS_OK);
    assert_int_equal(profile_append_thread(profile, &(struct capture_thread){.native_id = 1}, &index), STATUS_OK);
    return profile;
}

static void test_a_measure_that_was_not_taken_is_absent(void **state) {
    (void)state;
    struct profile *profile = one_thread(CAPTURE_MODE_WALL);
    add(profile, 0, CAPTURE_RUN_UNKNOWN, CAPTURE_GIL_UNKNOWN, 5);
    assert_true(profile_has(profile, MEASURE_WALL_NS));
    assert_false(profile_has(profile, MEASURE_CPU_NS));
    assert_false(profile_has(profile, MEASURE_WAIT_NS));
    /* One that was looked for and not found is 0. */
    add(profile, 0, CAPTURE_RUNNING, CAPTURE_GIL_UNKNOWN, 7);
    assert_true(profile_has(profile, MEASURE_WAIT_NS));
    assert_false(profile_has(profile, MEASURE_GIL_WAIT_NS));
    add(profile, 0, CAPTURE_IDLE, CAPTURE_GIL_WAITING, 11);
    add(profile, 0, CAPTURE_IDLE, CAPTURE_GIL_NONE, 13);
    assert_int_equal(profile_total(profile, MEASURE_SAMPLES), 4);
    assert_int_equal(profile_total(profile, MEASURE_WALL_NS), 36);
    assert_int_equal(profile_total(profile, MEASURE_CPU_NS), 7);
    assert_int_equal(profile_total(profile, MEASURE_WAIT_NS), 24);
    assert_int_equal(profile_total(profile, MEASURE_GIL_WAIT_NS), 11);
    assert_int_equal(profile_main_measure(profile), MEASURE_WALL_NS);
    profile_free(profile);

    profile = one_thread(CAPTURE_MODE_CPU);
    add(profile, 0, CAPTURE_RUNNING, CAPTURE_GIL_HELD, 5);
    assert_int_equal(profile_total(profile, MEASURE_CPU_NS), 5);
    assert_false(profile_has(profile, MEASURE_WALL_NS));
    assert_int_equal(profile_main_measure(profile), MEASURE_CPU_NS);
    profile_free(profile);
}

static void test_sums_stop_at_the_top(void **state) {
    (void)state;
    struct profile *profile = one_thread(CAPTURE_MODE_CPU);
    assert_int_equal(profile_add_value(profile, 0, 0, MEASURE_ALLOC_BYTES, UINT64_MAX - 1), STATUS_OK);
    assert_int_equal(profile_add_value(profile, 0, 0, MEASURE_ALLOC_BYTES, 5), STATUS_OK);
    assert_true(profile_total(profile, MEASURE_ALLOC_BYTES) == UINT64_MAX);
    const uint64_t row[MEASURE_COUNT] = {[MEASURE_ALLOC_BYTES] = 1, [MEASURE_ALLOC_VARIANCE] = UINT64_MAX};
    assert_true(profile_margin(row, MEASURE_ALLOC_BYTES) == UINT64_MAX);
    profile_free(profile);
}

/* Two threads, an event, and an epoch in between. */
static void write_capture(struct capture_memory *memory, unsigned looks) {
    struct capture_writer_options options = {.max_strings = 4};
    struct capture_writer *writer = memory_writer_open(memory, &options);
    struct capture_value value = {CAPTURE_MEASURE_ALLOC_BYTES, 100};
    struct capture_event event = {.thread = 1, .time_ns = 5000000000, .values = &value, .value_count = 1};
    uint32_t other = 0;
    assert_int_equal(capture_add_thread(writer, &(struct capture_thread){.native_id = 43}, &other), STATUS_OK);
    for (unsigned i = 0; i < looks; i++)
        for (uint32_t thread = 1; thread <= 2; thread++) {
            const char *functions[] = {"main", (const char *[]){"a", "b", "c", "d"}[i % 4]};
            struct capture_sample sample = {.thread = thread,
                                            .stack = memory_stack(writer, "/x.py", functions, (int32_t[]){9, 2}, 2),
                                            .time_ns = 5000000000 + (i + 1) * 1000000,
                                            .weight_ns = 1000000,
                                            .run = CAPTURE_RUNNING};
            assert_int_equal(capture_write_sample(writer, &sample), STATUS_OK);
            event.stack = 0;
        }
    assert_int_equal(capture_write_event(writer, &event), STATUS_OK);
    assert_int_equal(capture_write_counters(writer, 0, &(struct capture_counters){2 * looks, 1, 0, 0}), STATUS_OK);
    assert_true(looks < 4 || capture_writer_epoch(writer) > 0);
    assert_int_equal(capture_writer_close(writer, NULL), STATUS_OK);
    memory_take(memory);
}

static void test_a_capture_becomes_a_profile(void **state) {
    (void)state;
    struct capture_memory memory;
    struct profile *profile = profile_new();
    struct profile_load_options options = {.with_samples = true, .max_samples = 30};
    write_capture(&memory, 20);
    assert_int_equal(profile_add_capture_bytes(profile, memory.bytes, memory.size_bytes, &options, NULL), STATUS_OK);
    assert_int_equal(profile->process_count, 1);
    assert_int_equal(profile->thread_count, 2); /* however many epochs told of them */
    assert_int_equal(profile->frame_count, 1 + 5);
    assert_int_equal(profile->stack_count, 1 + 5);
    assert_int_equal(profile->entry_count, 2 * 4 + 1);
    assert_int_equal(profile_total(profile, MEASURE_SAMPLES), 40);
    assert_int_equal(profile_total(profile, MEASURE_CPU_NS), 40000000);
    assert_int_equal(profile_total(profile, MEASURE_ALLOC_BYTES), 100);
    assert_int_equal(profile->elapsed_ns, 20000000);
    assert_int_equal(profile->processes[0].elapsed_ns, 20000000);
    assert_string_equal(profile->processes[0].command[1], "x.py");
    assert_string_equal(profile->threads[0].name, "MainThread");
    assert_string_equal(profile->threads[1].name, "");
    assert_int_equal(profile->counters.taken, 40);
    assert_int_equal(profile->sample_count, 30);
    assert_true(profile->samples_cut);
    assert_int_equal(profile->samples[0].time_ns, 1000000);
    assert_true(profile->damage.ended);

    /* A second one stands beside it; what is equal is shared. */
    assert_int_equal(profile_add_capture_bytes(profile, memory.bytes, memory.size_bytes, NULL, NULL), STATUS_OK);
    assert_int_equal(profile->process_count, 2);
    assert_int_equal(profile->thread_count, 4);
    assert_int_equal(profile->threads[3].process, 1);
    assert_int_equal(profile->stack_count, 1 + 5);
    assert_int_equal(profile_total(profile, MEASURE_SAMPLES), 80);
    assert_int_equal(profile->counters.taken, 80);

    /* One that was cut is in as far as it goes. */
    assert_int_equal(profile_add_capture_bytes(profile, memory.bytes, memory.size_bytes - 1, NULL, NULL),
                     STATUS_DAMAGED);
    assert_false(profile->damage.ended);
    profile_free(profile);
    memory_release(&memory);
}

/* The counters come last. */
static void test_what_was_cut_was_taken_all_the_same(void **state) {
    (void)state;
    struct capture_memory memory;
    struct capture_writer *writer = memory_writer_open(&memory, NULL);
    struct profile *profile = profile_new();
    struct profile_load_options options = {.without_idle = true};
    for (unsigned i = 0; i < 5; i++) {
        struct capture_sample sample = {.thread = 1, .run = i < 2 ? CAPTURE_RUNNING : CAPTURE_IDLE};
        assert_int_equal(capture_write_sample(writer, &sample), STATUS_OK);
    }
    assert_int_equal(capture_writer_flush(writer, UINT64_MAX), STATUS_OK);
    memory_take(&memory);
    capture_writer_abandon(writer);
    assert_int_equal(profile_add_capture_bytes(profile, memory.bytes, memory.size_bytes, &options, NULL),
                     STATUS_DAMAGED);
    assert_int_equal(profile->counters.taken, 5);
    profile_free(profile);
    memory_release(&memory);
}

/* As it is where strobe looks from outside before the agent is found, which was there before. */
static void test_time_begins_with_the_earlier_look(void **state) {
    (void)state;
    struct capture_memory memory;
    struct capture_writer *writer = memory_writer_open(&memory, NULL);
    struct profile *profile = profile_new();
    struct profile_load_options options = {.with_samples = true};
    struct capture_process earlier = {.pid = 42, .start_ns = 4990000000};
    assert_int_equal(capture_add_process(writer, &earlier), STATUS_OK);
    for (uint32_t i = 0; i < 3; i++) {
        struct capture_sample sample = {.thread = 1, .time_ns = 4995000000 + i * 1000000};
        assert_int_equal(capture_write_sample(writer, &sample), STATUS_OK);
        /* Too late: that time line is in use. */
        earlier.start_ns = 4000000000;
        assert_int_equal(capture_add_process(writer, &earlier), STATUS_OK);
    }
    assert_int_equal(capture_writer_close(writer, NULL), STATUS_OK);
    memory_take(&memory);
    assert_int_equal(profile_add_capture_bytes(profile, memory.bytes, memory.size_bytes, &options, NULL), STATUS_OK);
    assert_int_equal(profile->samples[0].time_ns, 5000000);
    assert_int_equal(profile->elapsed_ns, 7000000);
    assert_int_equal(profile->processes[0].elapsed_ns, 7000000);
    profile_free(profile);
    memory_release(&memory);
}

/* Where `line` holds so much, and held so much at the peak. */
static void hold(struct capture_writer *writer, int32_t line, uint64_t exec_count, int64_t live, int64_t peak) {
    const struct capture_difference values[] = {{CAPTURE_MEASURE_LIVE_BYTES, live}, {CAPTURE_MEASURE_PEAK_BYTES, peak}};
    struct capture_footprint footprint = {.time_ns = 5000000000 + exec_count * 1000000,
                                          .footprint_bytes = 7,
                                          .lost_records = 2,
                                          .exec_count = exec_count};
    assert_int_equal(capture_write_footprint(writer, &footprint), STATUS_OK);
    struct capture_change change = {.stack = memory_stack(writer, "/x.py", (const char *[]){"f"}, &line, 1),
                                    .time_ns = footprint.time_ns,
                                    .values = values,
                                    .value_count = 2};
    assert_int_equal(capture_write_change(writer, &change), STATUS_OK);
    footprint.peak_bytes = (uint64_t)peak + 10;
    assert_int_equal(capture_write_footprint(writer, &footprint), STATUS_OK);
}

static uint64_t value_in(const struct profile *profile, int32_t line, enum measure measure) {
    for (size_t i = 0; i < profile->entry_count; i++)
        if (profile->frames[profile->stacks[profile->entries[i].stack].frame].line == line)
            return profile_value(profile, i, measure);
    fail();
    return 0;
}

/* What lives of a program does not outlive its exec, and the peak is that of one of the programs, not a bit of each. */
static void test_an_exec_leaves_nothing_live(void **state) {
    (void)state;
    static const int64_t PEAKS[][3] = {{1000, 500, 300}, {500, 1000, 300}, {300, 500, 1000}};
    for (size_t i = 0; i < 3; i++) {
        struct capture_memory memory;
        struct capture_writer *writer = memory_writer_open(&memory, NULL);
        struct profile *profile = profile_new();
        for (uint32_t program = 0; program < 3; program++)
            hold(writer, (int32_t)program + 1, program, 100 + program, PEAKS[i][program]);
        assert_int_equal(capture_writer_close(writer, NULL), STATUS_OK);
        memory_take(&memory);
        /* Twice: another capture is another process. */
        for (int times = 1; times <= 2; times++) {
            assert_int_equal(profile_add_capture_bytes(profile, memory.bytes, memory.size_bytes, NULL, NULL),
                             STATUS_OK);
            assert_int_equal(profile_total(profile, MEASURE_LIVE_BYTES), times * 102);
            assert_int_equal(profile_total(profile, MEASURE_PEAK_BYTES), times * 1000);
        }
        for (int32_t line = 1; line <= 3; line++) {
            assert_int_equal(value_in(profile, line, MEASURE_LIVE_BYTES), line == 3 ? 102 : 0);
            assert_int_equal(value_in(profile, line, MEASURE_PEAK_BYTES), PEAKS[i][line - 1] == 1000 ? 1000 : 0);
        }
        assert_int_equal(profile->processes[0].memory.peak_bytes, 1010);
        assert_int_equal(profile->processes[0].memory.lost_records, 3 * 2);
        profile_free(profile);
        memory_release(&memory);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_library_code_is_told_by_its_path),
        cmocka_unit_test(test_a_string_is_the_users_where_the_user_runs_it),
        cmocka_unit_test(test_equal_things_are_one),
        cmocka_unit_test(test_a_measure_that_was_not_taken_is_absent),
        cmocka_unit_test(test_sums_stop_at_the_top),
        cmocka_unit_test(test_a_capture_becomes_a_profile),
        cmocka_unit_test(test_what_was_cut_was_taken_all_the_same),
        cmocka_unit_test(test_time_begins_with_the_earlier_look),
        cmocka_unit_test(test_an_exec_leaves_nothing_live),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
