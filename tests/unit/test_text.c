#include "base/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Each byte at each place, among plain ones, with every length: the text is looked at in pieces of eight. */
static void test_plain_text_ends_at_the_first_other_byte(void **state) {
    (void)state;
    enum { LENGTH = 27 };
    char text[LENGTH];
    for (size_t place = 0; place < LENGTH; place++)
        for (int byte = 0; byte < 256; byte++) {
            memset(text, 'a', sizeof text);
            text[place] = (char)byte;
            bool plain = byte >= 0x20 && byte <= 0x7e;
            for (size_t size = 0; size <= LENGTH; size++)
                assert_int_equal(text_plain_length(text, size), plain || place >= size ? size : place);
        }
}

static void check_safe(const char *bytes, const char *expected) {
    struct buffer buffer;
    buffer_init(&buffer, 1000);
    assert_int_equal(text_append_safe(&buffer, bytes, strlen(bytes), true), STATUS_OK);
    assert_string_equal(buffer_text(&buffer), expected);
    buffer_release(&buffer);
}

static void test_only_what_a_terminal_obeys_is_escaped(void **state) {
    (void)state;
    check_safe("", "");
    check_safe("plain text that is longer than eight", "plain text that is longer than eight");
    check_safe("Gr\303\274\303\237e, \344\270\255", "Gr\303\274\303\237e, \344\270\255");
    check_safe("before\033[31mafter\177", "before\\x1b[31mafter\\x7f");
    check_safe("C1: \302\233 cut: \303", "C1: \\xc2\\x9b cut: \\xc3");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_text_ends_at_the_first_other_byte),
        cmocka_unit_test(test_only_what_a_terminal_obeys_is_escaped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
