#include "base/message.h"
#include "base/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROOM = 41 };
static char text[ROOM];

__attribute__((format(printf, 1, 2))) static const char *format(const char *how, ...) {
    va_list arguments;
    memset(text, 'x', sizeof text);
    va_start(arguments, how);
    message_format(text, sizeof text, how, arguments);
    va_end(arguments);
    return text;
}

static void test_what_fits_is_whole(void **state) {
    (void)state;
    assert_string_equal(format("cannot read %s: %s", "a", "no such file"), "cannot read a: no such file");
    assert_string_equal(format("%s", "0123456789012345678901234567890123456789"),
                        "0123456789012345678901234567890123456789");
}

static void test_what_is_too_long_keeps_both_ends(void **state) {
    (void)state;
    assert_string_equal(format("cannot read %s: no such file", "/folder/folder/folder/name"),
                        "cannot read /folde…/name: no such file");
    assert_string_equal(format("%s", "01234567890123456789012345678901234567890"),
                        "012345678901234567…2345678901234567890");
}

/* Whatever the lengths, no character is cut in two. */
static void test_no_character_is_cut(void **state) {
    (void)state;
    static const char *const PIECES[] = {"\303\251", "\342\202\254", "\360\237\220\215"};
    for (size_t piece = 0; piece < 3; piece++)
        for (int before = 0; before < 5; before++)
            for (int after = 0; after < 5; after++) {
                char middle[ROOM * 4 + 1] = "";
                size_t length = strlen(PIECES[piece]);
                for (size_t i = 0; i < ROOM; i++)
                    memcpy(middle + i * length, PIECES[piece], length + 1);
                const char *made = format("%.*s%s%.*s", before, "beginning", middle, after, "ending");
                assert_true(strlen(made) < ROOM && strlen(made) > ROOM - 8);
                const char *at = made + before;
                for (; strncmp(at, "…", 3) != 0; at += length)
                    assert_memory_equal(at, PIECES[piece], length);
                size_t left = strlen(at) - 3 - (size_t)after;
                assert_int_equal(left % length, 0);
                for (at += 3; left > 0; left -= length, at += length)
                    assert_memory_equal(at, PIECES[piece], length);
                assert_memory_equal(at, "ending", (size_t)after);
            }
}

static void test_an_error_says_what_to_do(void **state) {
    (void)state;
    enum { LONG = 200000 };
    struct error error = {0};
    char *path = malloc(LONG + 1);
    assert_non_null(path);
    memset(path, 'p', LONG);
    path[LONG] = '\0';
    assert_int_equal(
        error_set(&error, STATUS_FAILED, "cannot write %s: the disk is full (TMPDIR=FOLDER puts it elsewhere)", path),
        STATUS_FAILED);
    assert_memory_equal(error.text, "cannot write ppp", strlen("cannot write ppp"));
    assert_non_null(strstr(error.text, "ppp: the disk is full (TMPDIR=FOLDER puts it elsewhere)"));
    assert_int_equal(strlen(error.text), sizeof error.text - 1);
    free(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_fits_is_whole),
        cmocka_unit_test(test_what_is_too_long_keeps_both_ends),
        cmocka_unit_test(test_no_character_is_cut),
        cmocka_unit_test(test_an_error_says_what_to_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
