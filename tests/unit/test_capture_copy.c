/* Merging captures, and all of capture and profile when memory runs out at any place. */
#include "capture/copy.h"

#include "capture_memory.h"
#include "profile/diff.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* The linker sends malloc and its kin here (meson.build), so that the n-th can fail. */
static long allocations_left = -1; /* -1: no end of them */

void *__real_malloc(size_t size_bytes);
void *__real_calloc(size_t count, size_t size_bytes);
void *__real_realloc(void *memory, size_t size_bytes);
void *__real_reallocarray(void *memory, size_t count, size_t size_bytes);
void *__wrap_malloc(size_t size_bytes);
void *__wrap_calloc(size_t count, size_t size_bytes);
void *__wrap_realloc(void *memory, size_t size_bytes);
void *__wrap_reallocarray(void *memory, size_t count, size_t size_bytes);

static bool may_allocate(void) {
    if (allocations_left < 0)
        return true;
    return allocations_left > 0 && allocations_left-- > 0;
}

void *__wrap_malloc(size_t size_bytes) {
    return may_allocate() ? __real_malloc(size_bytes) : NULL;
}

void *__wrap_calloc(size_t count, size_t size_bytes) {
    return may_allocate() ? __real_calloc(count, size_bytes) : NULL;
}

void *__wrap_realloc(void *memory, size_t size_bytes) {
    return may_allocate() ? __real_realloc(memory, size_bytes) : NULL;
}

void *__wrap_reallocarray(void *memory, size_t count, size_t size_bytes) {
    return may_allocate() ? __real_reallocarray(memory, count, size_bytes) : NULL;
}

enum { LOOKS = 200 };

/* Two threads, the second of which ends, in chunks and epochs of a few looks. */
static void write_capture(const char *path, uint64_t start_ns, const char *leaf) {
    struct capture_writer_options options = {.chunk_bytes = 200, .max_stacks = 20};
    struct capture_process process = {.process = 3, .pid = 42, .start_ns = start_ns, .start_unix_ns = 77};
    struct capture_thread thread = {.process = 3, .native_id = 42, .name = {"MainThread", 10}};
    struct capture_writer *writer = NULL;
    uint32_t ids[2];
    assert_int_equal(capture_writer_open(path, &options, &writer, NULL), STATUS_OK);
    assert_int_equal(capture_add_process(writer, &process), STATUS_OK);
    assert_int_equal(capture_add_thread(writer, &thread, &ids[0]), STATUS_OK);
    assert_int_equal(capture_add_thread(writer, &thread, &ids[1]), STATUS_OK);
    for (uint32_t i = 0; i < LOOKS; i++) {
        char function[16];
        (void)snprintf(function, sizeof function, "%s%u", leaf, i % 50);
        const char *const functions[] = {"main", function};
        struct capture_sample sample = {.thread = ids[i % 2],
                                        .stack = memory_stack(writer, "/x.py", functions, (int32_t[]){1, 2}, 2),
                                        .time_ns = start_ns + (i + 1) * 1000000,
                                        .weight_ns = 1000000};
        assert_int_equal(capture_write_sample(writer, &sample), STATUS_OK);
    }
    assert_int_equal(capture_end_thread(writer, ids[1], start_ns), STATUS_OK);
    assert_int_equal(capture_write_counters(writer, 3, &(struct capture_counters){.taken = LOOKS}), STATUS_OK);
    assert_int_equal(capture_writer_close(writer, NULL), STATUS_OK);
}

struct paths {
    char folder[32];
    char first[64];
    char second[64];
    char merged[64];
};

static int set_up(void **state) {
    static struct paths paths;
    (void)snprintf(paths.folder, sizeof paths.folder, "/tmp/test_capture_copy.XXXXXX");
    if (mkdtemp(paths.folder) == NULL)
        return -1;
    (void)snprintf(paths.first, sizeof paths.first, "%s/first", paths.folder);
    (void)snprintf(paths.second, sizeof paths.second, "%s/second", paths.folder);
    (void)snprintf(paths.merged, sizeof paths.merged, "%s/merged", paths.folder);
    write_capture(paths.first, 5000000000, "f");
    write_capture(paths.second, 1000000000000, "g");
    *state = &paths;
    return 0;
}

static int tear_down(void **state) {
    const struct paths *paths = *state;
    (void)unlink(paths->first);
    (void)unlink(paths->second);
    (void)unlink(paths->merged);
    return rmdir(paths->folder);
}

static enum status merge_two(const char *const sources[2], const char *merged,
                             const struct capture_writer_options *options) {
    struct capture_merge merge = {0};
    struct capture_writer *writer = NULL;
    TRY(capture_writer_open(merged, options, &writer, NULL));
    for (size_t i = 0; i < 2; i++) {
        enum status status = capture_copy(sources[i], writer, &merge, NULL);
        if (status != STATUS_OK) {
            capture_writer_abandon(writer);
            return status;
        }
    }
    return capture_writer_close(writer, NULL);
}

static enum status merge(const struct paths *paths, const struct capture_writer_options *options) {
    return merge_two((const char *const[]){paths->first, paths->second}, paths->merged, options);
}

static void test_a_merged_capture_is_the_sum(void **state) {
    const struct paths *paths = *state;
    static const struct capture_writer_options BIG = {0};
    static const struct capture_writer_options SMALL = {.chunk_bytes = 500, .max_frames = 10};
    for (int i = 0; i < 2; i++) {
        struct profile *merged = profile_new();
        struct profile *added = profile_new();
        assert_int_equal(merge(paths, i == 0 ? &BIG : &SMALL), STATUS_OK);
        assert_int_equal(profile_add_capture(merged, paths->merged, NULL, NULL), STATUS_OK);
        assert_int_equal(profile_add_capture(added, paths->first, NULL, NULL), STATUS_OK);
        assert_int_equal(profile_add_capture(added, paths->second, NULL, NULL), STATUS_OK);
        assert_int_equal(merged->process_count, 2);
        assert_int_equal(merged->thread_count, 4);
        assert_int_equal(merged->threads[3].process, 1);
        assert_int_equal(merged->stack_count, added->stack_count);
        assert_int_equal(merged->entry_count, added->entry_count);
        assert_int_equal(merged->counters.taken, 2 * LOOKS);
        assert_int_equal(merged->elapsed_ns, added->elapsed_ns);
        assert_int_equal(merged->processes[1].elapsed_ns, LOOKS * 1000000);
        assert_int_equal(merged->processes[1].start_unix_ns, 77);
        assert_int_equal(profile_total(merged, MEASURE_WALL_NS), 2 * LOOKS * UINT64_C(1000000));
        for (size_t entry = 0; entry < merged->entry_count; entry++)
            assert_int_equal(profile_value(merged, entry, MEASURE_WALL_NS),
                             profile_value(added, entry, MEASURE_WALL_NS));
        profile_free(merged);
        profile_free(added);
    }
}

/* What had not ended when a capture did has no time at which it ended, wherever on the clock the next one begins. */
static void test_a_merged_capture_merges_again(void **state) {
    const struct paths *paths = *state;
    struct profile *profile = profile_new();
    char again[80];
    (void)snprintf(again, sizeof again, "%s/again", paths->folder);
    assert_int_equal(merge_two((const char *const[]){paths->second, paths->first}, paths->merged, NULL), STATUS_OK);
    assert_int_equal(merge_two((const char *const[]){paths->first, paths->merged}, again, NULL), STATUS_OK);
    assert_int_equal(profile_add_capture(profile, again, NULL, NULL), STATUS_OK);
    assert_int_equal(unlink(again), 0);
    assert_int_equal(profile->process_count, 3);
    assert_int_equal(profile->elapsed_ns, LOOKS * 1000000);
    for (size_t i = 0; i < profile->process_count; i++)
        assert_int_equal(profile->processes[i].elapsed_ns, LOOKS * 1000000);
    profile_free(profile);
}

static enum status load_and_compare(const struct paths *paths) {
    static const struct profile_load_options KEEP = {.with_samples = true};
    struct profile *before = profile_new();
    struct profile *after = profile_new();
    struct profile_diff diff;
    enum status status = before != NULL && after != NULL ? STATUS_OK : STATUS_FAILED;
    if (status == STATUS_OK)
        status = profile_add_capture(before, paths->first, &KEEP, NULL);
    if (status == STATUS_OK)
        status = profile_add_capture(after, paths->second, &KEEP, NULL);
    if (status == STATUS_OK)
        status = diff_profiles(before, after, NULL, false, &diff, NULL);
    if (status == STATUS_OK)
        profile_diff_release(&diff);
    profile_free(before);
    profile_free(after);
    return status;
}

static void test_want_of_memory_is_a_failure_and_nothing_worse(void **state) {
    const struct paths *paths = *state;
    enum status status = STATUS_FAILED;
    long needed = 0;
    for (; status != STATUS_OK; needed++) {
        allocations_left = needed;
        status = load_and_compare(paths);
        allocations_left = -1;
        if (status != STATUS_OK && status != STATUS_FAILED)
            fail_msg("%s with %ld allocations", status_name(status), needed);
    }
    assert_true(needed > 50);
    status = STATUS_FAILED;
    for (needed = 0; status != STATUS_OK; needed++) {
        allocations_left = needed;
        status = merge(paths, NULL);
        allocations_left = -1;
        assert_true(status == STATUS_OK || status == STATUS_FAILED);
    }
    assert_true(needed > 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_merged_capture_is_the_sum),
        cmocka_unit_test(test_a_merged_capture_merges_again),
        cmocka_unit_test(test_want_of_memory_is_a_failure_and_nothing_worse),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
