/* Profiles are written as stacks in words, "main:10 work:20 @json.loads:5": function:line, outermost first, in /app.py;
 * with an @ in the standard library, with a # in a file called /lib_b.py, with a ! without any file (the collector),
 * with a $ a native function of a library, with a % in the import machinery, with a ^ in a string, with a & what the
 * recorder calls <startup>. */
#include "profile/attribute.h"

#include "profile/build.h"
#include "profile/diff.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct capture_text text(const char *characters) {
    return (struct capture_text){characters, strlen(characters)};
}

static const char *file_of(char mark) {
    return mark == '@'   ? "/usr/lib/python3.11/json.py"
           : mark == '#' ? "/lib_b.py"
           : mark == '!' ? ""
           : mark == '$' ? "/usr/lib/libz.so"
           : mark == '%' ? "<frozen importlib._bootstrap>"
           : mark == '^' ? "<string>"
           : mark == '&' ? "<startup>"
                         : "/app.py";
}

static uint32_t stack_of(struct profile *profile, const char *words) {
    char copy[4096];
    char *rest = NULL;
    uint32_t stack = 0;
    (void)snprintf(copy, sizeof copy, "%s", words);
    for (char *word = strtok_r(copy, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        bool has_mark = strchr("@#!$%^&", *word) != NULL;
        char *line = strchr(word, ':');
        struct profile_frame_key key = {.kind = *word == '!'   ? CAPTURE_FRAME_GC
                                                : *word == '$' ? CAPTURE_FRAME_NATIVE
                                                : *word == '&' ? CAPTURE_FRAME_NATIVE
                                                               : CAPTURE_FRAME_PYTHON,
                                        .file = text(file_of(*word)),
                                        .line = atoi(line + 1),
                                        .end_line = -1,
                                        .column = -1,
                                        .end_column = -1,
                                        .first_line = atoi(line + 1) / 10 * 10};
        uint32_t frame = 0;
        *line = '\0';
        key.function = text(word + has_mark);
        assert_int_equal(profile_intern_frame(profile, &key, &frame), STATUS_OK);
        assert_int_equal(profile_intern_stack(profile, stack, frame, &stack), STATUS_OK);
    }
    return stack;
}

static struct profile *new_profile(void) {
    struct profile *profile = profile_new();
    uint32_t index = 0;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(profile_append_process(profile, &(struct capture_process){.pid = i}, &index), STATUS_OK);
        assert_int_equal(profile_append_thread(profile, &(struct capture_thread){.process = index}, &index), STATUS_OK);
    }
    return profile;
}

static void add(struct profile *profile, uint32_t thread, const char *words, uint64_t cpu_ns) {
    assert_int_equal(profile_add_value(profile, thread, stack_of(profile, words), MEASURE_CPU_NS, cpu_ns), STATUS_OK);
}

static const struct attribute_row *line_row(const struct attribution *result, const char *file, int32_t line) {
    for (size_t i = 0; i < result->line_count; i++)
        if (strcmp(result->lines[i].file, file) == 0 && result->lines[i].line == line)
            return &result->lines[i];
    return NULL;
}

static void assert_line(const struct attribution *result, const char *file, int32_t line, uint64_t self,
                        uint64_t total) {
    const struct attribute_row *row = line_row(result, file, line);
    assert_non_null(row);
    assert_int_equal(row->self[MEASURE_CPU_NS], self);
    assert_int_equal(row->total[MEASURE_CPU_NS], total);
}

static void assert_function(const struct attribution *result, const char *function, uint64_t self, uint64_t total) {
    for (size_t i = 0; i < result->function_count; i++)
        if (strcmp(result->functions[i].function, function) == 0) {
            assert_int_equal(result->functions[i].self[MEASURE_CPU_NS], self);
            assert_int_equal(result->functions[i].total[MEASURE_CPU_NS], total);
            return;
        }
    fail_msg("no function %s", function);
}

static void attribute(const struct profile *profile, const struct attribute_options *options,
                      struct attribution *result) {
    assert_int_equal(attribute_profile(profile, options, result, NULL), STATUS_OK);
}

static void test_self_is_the_innermost_lines_and_total_has_its_callees(void **state) {
    (void)state;
    struct profile *profile = new_profile();
    struct attribution result;
    add(profile, 0, "main:10 work:20", 100);
    add(profile, 0, "main:10 work:21", 30);
    add(profile, 0, "main:11", 7);
    attribute(profile, NULL, &result);
    assert_int_equal(result.line_count, 4);
    assert_line(&result, "/app.py", 10, 0, 130);
    assert_line(&result, "/app.py", 11, 7, 7);
    assert_line(&result, "/app.py", 20, 100, 100);
    assert_line(&result, "/app.py", 21, 30, 30);
    assert_int_equal(result.function_count, 2);
    assert_function(&result, "main", 7, 137);
    assert_function(&result, "work", 130, 130);
    assert_int_equal(result.sums[MEASURE_CPU_NS], 137);
    assert_int_equal(result.left_out[MEASURE_CPU_NS], 0);
    for (size_t i = 1; i < result.line_count; i++)
        assert_true(result.lines[i - 1].line < result.lines[i].line);
    attribution_release(&result);
    profile_free(profile);
}

static void test_recursion_counts_once(void **state) {
    (void)state;
    struct profile *profile = new_profile();
    struct attribution result;
    add(profile, 0, "main:10 f:20 f:20 g:30 f:20", 100);
    add(profile, 0, "main:10 f:20 g:30 f:21", 10);
    add(profile, 0, "main:10 g:30 f:20", 1);
    attribute(profile, NULL, &result);
    assert_line(&result, "/app.py", 10, 0, 111);
    assert_line(&result, "/app.py", 20, 101, 111);
    assert_line(&result, "/app.py", 21, 10, 10);
    assert_line(&result, "/app.py", 30, 0, 111);
    assert_function(&result, "f", 111, 111);
    assert_function(&result, "g", 0, 111);
    attribution_release(&result);
    profile_free(profile);
}

/* Without user code, too; and what is in a string is whose who runs it. */
static void test_imports_are_the_importing_lines(void **state) {
    (void)state;
    struct profile *profile = new_profile();
    struct attribution result;
    add(profile, 0, "@a:5 %_find_and_load:1 %_call:2", 100);
    add(profile, 0, "@a:5 %_find_and_load:1 @b:6 %_call:2", 10);
    add(profile, 0, "%_run:3 %_call:4", 1);
    add(profile, 0, "main:10 %_find_and_load:1 @b:6", 1000);
    add(profile, 0, "@site:7 ^line:1", 5);
    add(profile, 0, "@site:7 ^line:1 @c:8", 6);
    add(profile, 0, "main:10 ^made:2", 7);
    add(profile, 0, "main:10 @loads:9 ^__new__:3", 8);
    add(profile, 0, "main:11 @runctx:9 !native:0 ^line:4", 9);
    attribute(profile, NULL, &result);
    assert_line(&result, file_of('@'), 5, 100, 110);
    assert_line(&result, file_of('@'), 6, 10, 10);
    assert_line(&result, file_of('%'), 4, 1, 1);
    assert_null(line_row(&result, file_of('%'), 2));
    assert_line(&result, file_of('@'), 7, 0, 11);
    assert_line(&result, file_of('^'), 1, 5, 11);
    assert_line(&result, file_of('@'), 8, 6, 6);
    assert_line(&result, file_of('^'), 2, 7, 7);
    assert_line(&result, "/app.py", 10, 1008, 1015);
    assert_line(&result, "/app.py", 11, 9, 9); /* exec() stands between the library and its string */
    assert_null(line_row(&result, file_of('^'), 4));
    assert_int_equal(result.sums[MEASURE_CPU_NS], 1146);
    attribution_release(&result);
    profile_free(profile);
}

static void test_library_code_is_charged_to_its_caller(void **state) {
    (void)state;
    struct profile *profile = new_profile();
    struct attribute_options all = {.all = true, .thread = ATTRIBUTE_ANY, .process = ATTRIBUTE_ANY};
    struct attribution result;
    add(profile, 0, "main:10 @loads:5 @scan:6 !gc:0", 100);
    add(profile, 0, "@bootstrap:1 main:11 @loads:5 hook:20 @scan:6", 10);
    add(profile, 0, "main:10", 1);
    attribute(profile, NULL, &result);
    assert_int_equal(result.line_count, 3);
    assert_line(&result, "/app.py", 10, 101, 101);
    assert_line(&result, "/app.py", 11, 0, 10);
    assert_line(&result, "/app.py", 20, 10, 10);
    attribution_release(&result);

    attribute(profile, &all, &result);
    const char *library = file_of('@');
    assert_line(&result, "/app.py", 10, 1, 101);
    assert_line(&result, library, 1, 0, 10);
    assert_line(&result, library, 5, 0, 110);
    assert_line(&result, library, 6, 110, 110); /* the collector has no line: it is its caller's */
    assert_line(&result, "/app.py", 20, 0, 10);
    attribution_release(&result);
    profile_free(profile);
}

static void test_a_stack_without_user_code_stands_for_itself(void **state) {
    (void)state;
    struct profile *profile = new_profile();
    struct attribution result;
    add(profile, 1, "@bootstrap:1 @wait:2", 100);
    add(profile, 1, "@bootstrap:1 @wait:2 main:10", 10);
    add(profile, 1, "!gc:0", 3);
    add(profile, 1, "", 4);
    attribute(profile, NULL, &result);
    assert_line(&result, file_of('@'), 1, 0, 100);
    assert_line(&result, file_of('@'), 2, 100, 100);
    assert_line(&result, "/app.py", 10, 10, 10);
    assert_int_equal(result.sums[MEASURE_CPU_NS], 110);
    assert_int_equal(result.left_out[MEASURE_CPU_NS], 7);
    assert_int_equal(attribute_share(&result.threads, 0)[MEASURE_CPU_NS], 0);
    assert_int_equal(attribute_share(&result.threads, 1)[MEASURE_CPU_NS], 110);
    assert_int_equal(attribute_share(&result.processes, 1)[MEASURE_CPU_NS], 110);
    attribution_release(&result);
    profile_free(profile);
}

static const struct attribute_native *native_row(const struct attribution *result, int32_t line, const char *name) {
    size_t count = 0;
    const struct attribute_native *rows = attribution_natives_of(result, "/app.py", line, &count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(rows[i].function, name) == 0)
            return &rows[i];
    return NULL;
}

static void test_native_functions_are_their_callers_and_told_apart(void **state) {
    (void)state;
    struct profile *profile = new_profile();
    struct attribute_options options = {.thread = ATTRIBUTE_ANY, .process = ATTRIBUTE_ANY};
    struct attribution result;
    add(profile, 0, "main:10 $deflate:0", 100);
    add(profile, 0, "main:10 @compress:5 $deflate:0", 20);
    add(profile, 0, "main:10 @compress:5 $crc32:0", 3);
    add(profile, 0, "main:11 $deflate:0", 7);
    add(profile, 0, "main:10", 1000);
    for (options.all = false;; options.all = true) {
        attribute(profile, &options, &result);
        assert_line(&result, "/app.py", 10, options.all ? 1100 : 1123, 1123);
        assert_line(&result, "/app.py", 11, 7, 7);
        assert_int_equal(result.line_count, options.all ? 3 : 2);
        assert_int_equal(native_row(&result, 10, "deflate")->self[MEASURE_CPU_NS], options.all ? 100 : 120);
        assert_int_equal(native_row(&result, 11, "deflate")->self[MEASURE_CPU_NS], 7);
        assert_true((native_row(&result, 10, "crc32") == NULL) == options.all);
        assert_null(native_row(&result, 12, "deflate"));
        assert_int_equal(result.native_function_count, 2);
        assert_string_equal(result.native_functions[1].function, "deflate");
        assert_string_equal(result.native_functions[1].library, "/usr/lib/libz.so");
        assert_int_equal(result.native_functions[1].self[MEASURE_CPU_NS], 127);
        attribution_release(&result);
        if (options.all)
            break;
    }
    profile_free(profile);
}

static void test_a_native_function_stands_for_itself_where_nothing_called_it(void **state) {
    (void)state;
    struct profile *profile = new_profile();
    struct attribution result;
    add(profile, 0, "$thread_main:0 $dgemm:0", 100);
    add(profile, 1, "@bootstrap:1 @wait:2 $poll:0", 10);
    add(profile, 1, "&<startup>:0", 5);
    attribute(profile, NULL, &result);
    assert_line(&result, "<startup>", 0, 5, 5);
    assert_int_equal(result.native_function_count, 2); /* <startup> is none */
    assert_line(&result, file_of('$'), 0, 100, 100);
    assert_line(&result, file_of('@'), 2, 10, 10);
    assert_line(&result, file_of('@'), 1, 0, 10);
    assert_int_equal(result.left_out[MEASURE_CPU_NS], 0);
    attribution_release(&result);
    profile_free(profile);
}

static void test_only_and_exclude(void **state) {
    (void)state;
    struct profile *profile = new_profile();
    struct attribution result;
    add(profile, 0, "main:10 #helper:20 @loads:5", 100);
    add(profile, 0, "main:11", 10);
    add(profile, 1, "#helper:21", 1);
    struct attribute_options options = {.exclude = (const char *const[]){"lib_*.py"},
                                        .exclude_count = 1,
                                        .thread = ATTRIBUTE_ANY,
                                        .process = ATTRIBUTE_ANY};
    attribute(profile, &options, &result);
    assert_int_equal(result.line_count, 2);
    assert_line(&result, "/app.py", 10, 100, 100);
    assert_int_equal(result.left_out[MEASURE_CPU_NS], 1);
    attribution_release(&result);

    options.only = options.exclude;
    options.only_count = 1;
    options.exclude_count = 0;
    attribute(profile, &options, &result);
    assert_int_equal(result.line_count, 2);
    assert_line(&result, "/lib_b.py", 20, 100, 100);
    assert_line(&result, "/lib_b.py", 21, 1, 1);
    assert_int_equal(result.left_out[MEASURE_CPU_NS], 10);
    attribution_release(&result);

    /* Library code can be asked for. */
    options.only = (const char *const[]){"*json*"};
    attribute(profile, &options, &result);
    assert_int_equal(result.line_count, 1);
    assert_line(&result, file_of('@'), 5, 100, 100);
    attribution_release(&result);

    options = (struct attribute_options){.thread = 1, .process = ATTRIBUTE_ANY};
    attribute(profile, &options, &result);
    assert_int_equal(result.sums[MEASURE_CPU_NS], 1);
    attribution_release(&result);
    options = (struct attribute_options){.thread = ATTRIBUTE_ANY, .process = 0};
    attribute(profile, &options, &result);
    assert_int_equal(result.sums[MEASURE_CPU_NS], 110);
    attribution_release(&result);
    profile_free(profile);
}

static void test_globs(void **state) {
    (void)state;
    assert_true(attribute_glob_matches("*.py", "/a/b/c.py"));
    assert_true(attribute_glob_matches("/a/*", "/a/b/c.py"));
    assert_true(attribute_glob_matches("b/*.py", "/a/b/c.py"));
    assert_true(attribute_glob_matches("c.py", "/a/b/c.py"));
    assert_false(attribute_glob_matches("b.py", "/a/bb.py"));
    assert_false(attribute_glob_matches("/b/*", "/a/b/c.py"));
    assert_true(attribute_glob_matches("<string>", "<string>"));
}

/* Not longer for a deep recursion than its frames are many: a walk of each stack would be 10^10 steps. */
static void test_deep_recursion_is_linear(void **state) {
    (void)state;
    enum { DEPTH = 200000 };
    struct profile *profile = new_profile();
    struct profile_frame_key key = {.function = text("f"), .file = text("/app.py"), .line = 5};
    struct attribution result;
    uint32_t frame = 0;
    uint32_t stack = 0;
    assert_int_equal(profile_intern_frame(profile, &key, &frame), STATUS_OK);
    for (int i = 0; i < DEPTH; i++) {
        assert_int_equal(profile_intern_stack(profile, stack, frame, &stack), STATUS_OK);
        assert_int_equal(profile_add_value(profile, 0, stack, MEASURE_CPU_NS, 1), STATUS_OK);
    }
    attribute(profile, NULL, &result);
    assert_line(&result, "/app.py", 5, DEPTH, DEPTH);
    attribution_release(&result);
    profile_free(profile);
}

/* Against the definition, word for word, on random trees. */
static void test_agrees_with_a_walk_of_each_stack(void **state) {
    (void)state;
    static const char *const WORDS[] = {"a:10", "a:11", "b:20", "c:30", "@x:40", "@y:50", "$n:60", "!gc:0"};
    static const char RANKS[] = "!$@";
    uint32_t random = 7;
    for (int round = 0; round < 50; round++) {
        struct profile *profile = new_profile();
        struct attribution result;
        uint64_t self[8] = {0};
        uint64_t total[8] = {0};
        for (int i = 0; i < 100; i++) {
            char words[256] = "";
            unsigned seen = 0;
            int innermost = -1;
            int best = 0;
            for (unsigned depth = (random = random * 1664525 + 1013904223) >> 29; depth > 0; depth--) {
                unsigned word = (random = random * 1664525 + 1013904223) >> 29;
                size_t used = strlen(words);
                (void)snprintf(words + used, sizeof words - used, "%s ", WORDS[word]);
                const char *rank = strchr(RANKS, WORDS[word][0]);
                int class = rank != NULL ? (int)(rank - RANKS) : 3;
                if (class > 0 && class >= best) {
                    seen = class > best ? 0 : seen;
                    best = class;
                    seen |= 1u << word;
                    innermost = (int)word;
                }
            }
            add(profile, 0, words, 1);
            for (int word = 0; word < 8; word++)
                total[word] += seen >> word & 1;
            if (innermost >= 0)
                self[innermost]++;
        }
        attribute(profile, NULL, &result);
        for (int word = 0; word < 7; word++) {
            const struct attribute_row *row =
                line_row(&result, file_of(WORDS[word][0]), atoi(strchr(WORDS[word], ':') + 1));
            assert_int_equal(row != NULL ? row->self[MEASURE_CPU_NS] : 0, self[word]);
            assert_int_equal(row != NULL ? row->total[MEASURE_CPU_NS] : 0, total[word]);
        }
        attribution_release(&result);
        profile_free(profile);
    }
}

static void assert_same_rows(const struct attribute_row *left, size_t left_count, const struct attribute_row *right,
                             size_t right_count) {
    assert_int_equal(left_count, right_count);
    for (size_t i = 0; i < left_count; i++) {
        assert_string_equal(left[i].file, right[i].file);
        assert_string_equal(left[i].function, right[i].function);
        assert_int_equal(left[i].line, right[i].line);
        assert_int_equal(left[i].taken, right[i].taken);
        assert_memory_equal(left[i].self, right[i].self, sizeof left[i].self);
        assert_memory_equal(left[i].total, right[i].total, sizeof left[i].total);
    }
}

/* What the attributor says of the thread is what is said of a profile that has nothing else. */
static void assert_thread_is_as_alone(struct attributor *attributor, uint32_t thread, const struct profile *alone) {
    struct attribution result;
    struct attribution expected;
    assert_int_equal(attributor_run(attributor, thread, &result, NULL), STATUS_OK);
    attribute(alone, NULL, &expected);
    assert_same_rows(result.lines, result.line_count, expected.lines, expected.line_count);
    assert_same_rows(result.functions, result.function_count, expected.functions, expected.function_count);
    assert_int_equal(result.native_count, expected.native_count);
    for (size_t i = 0; i < result.native_count; i++)
        assert_memory_equal(result.natives[i].self, expected.natives[i].self, sizeof result.natives[i].self);
    assert_memory_equal(result.sums, expected.sums, sizeof result.sums);
    assert_memory_equal(result.left_out, expected.left_out, sizeof result.left_out);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(attribute_share(&result.threads, i)[MEASURE_CPU_NS],
                         i == thread ? result.sums[MEASURE_CPU_NS] : 0);
        assert_int_equal(attribute_share(&result.processes, i)[MEASURE_CPU_NS],
                         i == thread ? result.sums[MEASURE_CPU_NS] : 0);
    }
    attribution_release(&result);
    attribution_release(&expected);
}

static void test_threads_one_after_the_other_are_each_as_if_alone(void **state) {
    (void)state;
    static const char *const WORDS[] = {"a:10", "a:11", "b:20", "c:30", "@x:40", "@y:50", "$n:60", "!gc:0"};
    uint32_t random = 7;
    for (int round = 0; round < 20; round++) {
        struct profile *profiles[] = {new_profile(), new_profile(), new_profile()}; /* the last one has all */
        struct attributor *attributor = NULL;
        for (int i = 0; i < 40; i++) {
            char words[256] = "";
            uint32_t thread = (random = random * 1664525 + 1013904223) >> 31;
            for (unsigned depth = (random = random * 1664525 + 1013904223) >> 30; depth > 0; depth--) {
                size_t used = strlen(words);
                (void)snprintf(words + used, sizeof words - used, "%s ",
                               WORDS[(random = random * 1664525 + 1013904223) >> 29]);
            }
            add(profiles[thread], thread, words, 1 + random % 7);
            add(profiles[2], thread, words, 1 + random % 7);
        }
        assert_int_equal(attributor_new(profiles[2], NULL, &attributor, NULL), STATUS_OK);
        for (uint32_t i = 0; i < 6; i++) {
            assert_true(attributor_has_thread(attributor, i % 2));
            assert_thread_is_as_alone(attributor, i % 2, profiles[i % 2]);
        }
        attributor_free(attributor);
        for (int i = 0; i < 3; i++)
            profile_free(profiles[i]);
    }
}

/* Threads with a stack each: a look at all stacks, or all threads, for every one of them would be 10^10 steps. */
static void test_many_threads_are_linear(void **state) {
    (void)state;
    enum { THREADS = 100000 };
    struct profile *profile = new_profile();
    struct attributor *attributor = NULL;
    for (uint32_t i = 0; i < THREADS; i++) {
        struct profile_frame_key key = {.function = text("f"), .file = text("/app.py"), .line = (int32_t)i + 1};
        uint32_t frame = 0, stack = 0, thread = 0;
        assert_int_equal(profile_intern_frame(profile, &key, &frame), STATUS_OK);
        assert_int_equal(profile_intern_stack(profile, 0, frame, &stack), STATUS_OK);
        assert_int_equal(profile_append_thread(profile, &(struct capture_thread){.process = 0}, &thread), STATUS_OK);
        assert_int_equal(profile_add_value(profile, thread, stack, MEASURE_CPU_NS, i + 1), STATUS_OK);
    }
    assert_int_equal(attributor_new(profile, NULL, &attributor, NULL), STATUS_OK);
    assert_false(attributor_has_thread(attributor, 0));
    for (uint32_t i = 0; i < THREADS; i++) {
        struct attribution result;
        assert_int_equal(attributor_run(attributor, i + 2, &result, NULL), STATUS_OK);
        assert_int_equal(result.line_count, 1);
        assert_line(&result, "/app.py", (int32_t)i + 1, i + 1, i + 1);
        attribution_release(&result);
    }
    attributor_free(attributor);
    profile_free(profile);
}

static void test_a_difference_is_scaled_by_the_time_sampled(void **state) {
    (void)state;
    struct profile *before = new_profile();
    struct profile *after = new_profile();
    struct profile_diff diff;
    before->processes[0].elapsed_ns = 1000;
    after->processes[0].elapsed_ns = 2000;
    add(before, 0, "main:10 work:20", 100);
    add(before, 0, "main:10 gone:30", 50);
    add(after, 0, "main:10 work:20", 400);
    add(after, 0, "main:10 fresh:40", 10);
    assert_int_equal(profile_add_value(before, 0, 0, MEASURE_WAIT_NS, 1), STATUS_OK);
    assert_int_equal(profile_add_value(after, 0, stack_of(after, "main:10"), MEASURE_LIVE_BYTES, 8), STATUS_OK);
    assert_int_equal(diff_profiles(before, after, NULL, false, &diff, NULL), STATUS_OK);
    assert_true(diff.scale == 0.5);
    assert_true(diff.taken[MEASURE_CPU_NS]);
    assert_false(diff.taken[MEASURE_WAIT_NS]);
    assert_int_equal(diff.line_count, 4);
    assert_int_equal(diff.lines[0].line, 10);
    assert_int_equal(diff.lines[0].total_before[MEASURE_CPU_NS], 150);
    assert_int_equal(diff.lines[0].total_after[MEASURE_CPU_NS], 205);
    assert_int_equal(diff.lines[0].self_after[MEASURE_LIVE_BYTES], 8);
    assert_int_equal(diff.lines[1].line, 20);
    assert_true(diff_change(&diff.lines[1], MEASURE_CPU_NS) == 100.0);
    assert_true(diff_change(&diff.lines[2], MEASURE_CPU_NS) == -50.0);
    assert_true(diff_change(&diff.lines[3], MEASURE_CPU_NS) == 5.0);
    assert_int_equal(diff.function_count, 4);
    assert_string_equal(diff.functions[0].function, "fresh");
    assert_int_equal(diff.sums_after[MEASURE_CPU_NS], 205);
    profile_diff_release(&diff);
    profile_free(before);
    profile_free(after);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_self_is_the_innermost_lines_and_total_has_its_callees),
        cmocka_unit_test(test_recursion_counts_once),
        cmocka_unit_test(test_library_code_is_charged_to_its_caller),
        cmocka_unit_test(test_imports_are_the_importing_lines),
        cmocka_unit_test(test_a_stack_without_user_code_stands_for_itself),
        cmocka_unit_test(test_native_functions_are_their_callers_and_told_apart),
        cmocka_unit_test(test_a_native_function_stands_for_itself_where_nothing_called_it),
        cmocka_unit_test(test_only_and_exclude),
        cmocka_unit_test(test_globs),
        cmocka_unit_test(test_deep_recursion_is_linear),
        cmocka_unit_test(test_agrees_with_a_walk_of_each_stack),
        cmocka_unit_test(test_threads_one_after_the_other_are_each_as_if_alone),
        cmocka_unit_test(test_many_threads_are_linear),
        cmocka_unit_test(test_a_difference_is_scaled_by_the_time_sampled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
