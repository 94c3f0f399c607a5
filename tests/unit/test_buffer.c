#include "base/buffer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_grows_and_keeps_text_terminated(void **state) {
    (void)state;
    struct buffer buffer;
    buffer_init(&buffer, 1000);
    assert_string_equal(buffer_text(&buffer), "");
    for (int i = 0; i < 100; i++)
        assert_int_equal(buffer_append_format(&buffer, "%d,", i % 10), STATUS_OK);
    assert_int_equal(buffer.size_bytes, 200);
    assert_int_equal(buffer.data[200], '\0');
    buffer_truncate(&buffer, 4);
    assert_string_equal(buffer_text(&buffer), "0,1,");
    buffer_release(&buffer);
}

static void test_refuses_what_does_not_fit_and_keeps_the_rest(void **state) {
    (void)state;
    struct buffer buffer;
    buffer_init(&buffer, 5);
    assert_int_equal(buffer_append_text(&buffer, "abc"), STATUS_OK);
    assert_int_equal(buffer_append_text(&buffer, "def"), STATUS_LIMIT);
    assert_int_equal(buffer_append_text(&buffer, "de"), STATUS_OK);
    assert_int_equal(buffer_append_char(&buffer, 'f'), STATUS_LIMIT);
    void *where = NULL;
    assert_int_equal(buffer_extend(&buffer, SIZE_MAX, &where), STATUS_LIMIT);
    assert_string_equal(buffer_text(&buffer), "abcde");
    buffer_release(&buffer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grows_and_keeps_text_terminated),
        cmocka_unit_test(test_refuses_what_does_not_fit_and_keeps_the_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
