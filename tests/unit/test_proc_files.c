#include "process/linux/proc_files.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_stat_takes_commands_with_parentheses(void **state) {
    (void)state;
    struct proc_stat stat;
    const char *plain = "42 (bash) S 1 42 42 0 -1 4194560 1 2 3\n";
    assert_int_equal(proc_parse_stat(plain, &stat), STATUS_OK);
    assert_int_equal(stat.state, 'S');
    assert_string_equal(stat.comm, "bash");
    assert_int_equal(stat.flags, 4194560);

    const char *nasty = "42 (a) R 1 (b\n) Z ) R 1 42 42 0 -1 2097152 1\n";
    assert_int_equal(proc_parse_stat(nasty, &stat), STATUS_OK);
    assert_int_equal(stat.state, 'R');
    assert_string_equal(stat.comm, "a) R 1 (b\n) Z ");
    assert_int_equal(stat.flags, 2097152);
    assert_int_equal(stat.thread_count, 0);

    const char *whole = "42 (python) S 1 42 42 0 -1 4194560 11 12 13 14 15 16 17 18 20 0 7 0 123456 1 2 3\n";
    assert_int_equal(proc_parse_stat(whole, &stat), STATUS_OK);
    assert_int_equal(stat.thread_count, 7);
}

static void test_stat_refuses_what_is_none(void **state) {
    (void)state;
    struct proc_stat stat;
    const char *const broken[] = {"", "42", "42 (bash", "42 bash)", ")(", "42 (x)", "42 (x) ", "42 (x) S 1 2 3 4 5"};
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++)
        assert_int_equal(proc_parse_stat(broken[i], &stat), STATUS_DAMAGED);
    /* Longer than the kernel ever gives: cut. */
    assert_int_equal(proc_parse_stat("1 (0123456789abcdefXYZ) S 1 2 3 4 5 6", &stat), STATUS_OK);
    assert_string_equal(stat.comm, "0123456789abcde");
}

static void test_numbers_one_after_the_other(void **state) {
    (void)state;
    const char *text = "12  18446744073709551615 x 7", *next = text;
    assert_int_equal(proc_take_number(&next), 12);
    assert_true(proc_take_number(&next) == UINT64_MAX);
    assert_int_equal(proc_take_number(&next), 0);
    assert_string_equal(next, "x 7");
    next = "";
    assert_int_equal(proc_take_number(&next), 0);
}

static void test_status_fields_count_only_at_line_starts(void **state) {
    (void)state;
    const char *text = "Name:\tTgid:\nTgid:\t17\nNSpid:\t17\t5\t1\nNSpidX:\t9\n";
    pid_t pid = 0;
    size_t count = 0;
    assert_true(proc_parse_last_pid(proc_status_field(text, "Tgid"), &pid, &count));
    assert_int_equal(pid, 17);
    assert_int_equal(count, 1);
    assert_true(proc_parse_last_pid(proc_status_field(text, "NSpid"), &pid, &count));
    assert_int_equal(pid, 1);
    assert_int_equal(count, 3);
    assert_null(proc_status_field(text, "Uid"));
    assert_null(proc_status_field("", "Uid"));
    assert_false(proc_parse_last_pid(NULL, &pid, &count));
    assert_false(proc_parse_last_pid("\t\n", &pid, &count));
    assert_false(proc_parse_last_pid("\t99999999999999999999\n", &pid, &count));
}

static void test_futex_addresses(void **state) {
    (void)state;
    bool is_vector = true;
    assert_int_equal(proc_parse_futex("running\n", &is_vector), 0);
    assert_false(is_vector);
    assert_int_equal(proc_parse_futex("-1 0x7ffe 0x7fff\n", &is_vector), 0);
    assert_int_equal(proc_parse_futex("", &is_vector), 0);
    assert_int_equal(proc_parse_futex("0 0x3 0x7fff\n", &is_vector), 0);
#ifdef __x86_64__
    assert_int_equal(proc_parse_futex("202 0x7f0012345678 0x189 0x0\n", &is_vector), 0x7f0012345678);
#else
    assert_int_equal(proc_parse_futex("98 0x7f0012345678 0x189 0x0\n", &is_vector), 0x7f0012345678);
#endif
    assert_false(is_vector);
    assert_int_equal(proc_parse_futex("449 0x7f00 0x1\n", &is_vector), 0x7f00);
    assert_true(is_vector);
}

static void test_waits(void **state) {
    (void)state;
    bool running = false;
    assert_true(proc_parse_wait("running\n", &running));
    assert_true(running);
    assert_true(proc_parse_wait("0 0x3 0x7fff\n", &running));
    assert_false(running);
    /* In a page fault, or ended: the state letter tells. */
    assert_false(proc_parse_wait("-1 0x7ffe 0x7fff\n", &running));
    assert_false(proc_parse_wait("-1 0x0 0x0\n", &running));
    assert_false(proc_parse_wait("", &running));
    assert_false(proc_parse_wait("12", &running));
#ifdef __x86_64__
    assert_false(proc_parse_wait("60 0x0 0x0\n", &running));
    assert_false(proc_parse_wait("231 0x0 0x0\n", &running));
#else
    assert_false(proc_parse_wait("93 0x0 0x0\n", &running));
#endif
}

static void test_deleted_suffix(void **state) {
    (void)state;
    char gone[] = "/tmp/x (deleted)", kept[] = "/tmp/x (deleted) ", name[] = "[x] (deleted)", bare[] = " (deleted)";
    assert_true(proc_cut_deleted(gone));
    assert_string_equal(gone, "/tmp/x");
    assert_false(proc_cut_deleted(kept));
    assert_false(proc_cut_deleted(name));
    assert_false(proc_cut_deleted(bare));
}

static void test_errno_says_what_became_of_the_process(void **state) {
    (void)state;
    assert_int_equal(status_from_errno(ESRCH), STATUS_NO_PROCESS);
    assert_int_equal(status_from_errno(ENOENT), STATUS_NO_PROCESS);
    assert_int_equal(status_from_errno(EPERM), STATUS_PERMISSION);
    assert_int_equal(status_from_errno(EACCES), STATUS_PERMISSION);
    assert_int_equal(status_from_errno(EMFILE), STATUS_NO_FILES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stat_takes_commands_with_parentheses),
        cmocka_unit_test(test_stat_refuses_what_is_none),
        cmocka_unit_test(test_numbers_one_after_the_other),
        cmocka_unit_test(test_status_fields_count_only_at_line_starts),
        cmocka_unit_test(test_futex_addresses),
        cmocka_unit_test(test_waits),
        cmocka_unit_test(test_deleted_suffix),
        cmocka_unit_test(test_errno_says_what_became_of_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
