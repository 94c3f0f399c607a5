#include "cpython/str.h"

#include "fake_target.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const int minors[] = {8, 11, 12};

struct reading {
    struct buffer text;
    bool cut;
};

static enum status read_string(struct fake_target *target, remote_addr address, size_t max_characters,
                               struct reading *reading) {
    buffer_init(&reading->text, 1 << 16);
    assert_int_equal(buffer_append_text(&reading->text, ">"), STATUS_OK);
    return string_read(&target->runtime, address, max_characters, &reading->text, &reading->cut);
}

static void assert_reads(struct fake_target *target, remote_addr address, size_t max_characters, const char *expected,
                         bool cut) {
    struct reading reading;
    assert_int_equal(read_string(target, address, max_characters, &reading), STATUS_OK);
    assert_string_equal(buffer_text(&reading.text), expected);
    assert_int_equal(reading.cut, cut);
    buffer_release(&reading.text);
}

static void assert_fails(struct fake_target *target, remote_addr address, enum status status) {
    struct reading reading;
    assert_int_equal(read_string(target, address, 1000, &reading), status);
    assert_string_equal(buffer_text(&reading.text), ">");
    buffer_release(&reading.text);
}

static void test_every_kind(void **state) {
    (void)state;
    static const uint16_t wide[] = {'a', 0xe9, 0x4e2d, 0xdc80};
    static const uint32_t wider[] = {'a', 0x1f600, 0xd800, 0x10ffff};
    for (size_t i = 0; i < sizeof minors / sizeof minors[0]; i++) {
        for (int compact = 0; compact < 2; compact++) {
            struct fake_target *target = fake_new(minors[i]);
            assert_reads(target, fake_string(target, 0, 1, compact, true, 5, "hello", 5), 5, ">hello", false);
            assert_reads(target, fake_string(target, 0, 1, compact, true, 5, "hello", 5), 4, ">hell", true);
            assert_reads(target, fake_string(target, 0, 1, compact, true, 0, "", 0), 0, ">", false);
            assert_reads(target, fake_string(target, 0, 1, compact, false, 2, "\xe9\xff", 2), 9, ">éÿ", false);
            assert_reads(target, fake_string(target, 0, 2, compact, false, 4, wide, sizeof wide), 9, ">aé中\\udc80",
                         false);
            assert_reads(target, fake_string(target, 0, 4, compact, false, 4, wider, sizeof wider), 9,
                         ">a😀\\ud800\xf4\x8f\xbf\xbf", false);
            free(target);
        }
    }
}

static void test_longer_than_a_chunk(void **state) {
    (void)state;
    struct fake_target *target = fake_new(12);
    char text[1002] = ">";
    memset(text + 1, 'x', 1000);
    assert_reads(target, fake_string(target, 0, 1, true, true, 1000, text + 1, 1000), 1000, text, false);
    free(target);
}

static void test_nonsense_is_torn(void **state) {
    (void)state;
    static const uint32_t too_large[] = {'a', 0x110000};
    struct fake_target *target = fake_new(11);
    for (unsigned kind = 0; kind < 8; kind++)
        if (kind != 1 && kind != 2 && kind != 4)
            assert_fails(target, fake_string(target, 0, kind, true, false, 1, "aaaa", 4), STATUS_TORN);
    assert_fails(target, fake_string(target, 0, 2, true, true, 1, "aa", 2), STATUS_TORN);
    assert_fails(target, fake_string(target, 0, 1, true, true, UINT64_MAX, "a", 1), STATUS_TORN);
    assert_fails(target, fake_string(target, 0, 4, true, false, 2, too_large, sizeof too_large), STATUS_TORN);
    assert_fails(target, 0, STATUS_TORN);
    assert_fails(target, FAKE_START + 3, STATUS_TORN);
    assert_fails(target, 0x7ffffffff000, STATUS_UNREADABLE);
    free(target);
}

static void test_text_that_ends_outside_memory_leaves_nothing(void **state) {
    (void)state;
    struct fake_target *target = fake_new(12);
    remote_addr address = fake_string(target, 0, 1, true, true, (uint64_t)FAKE_BYTES * 2, "abc", 3);
    struct reading reading;
    buffer_init(&reading.text, (size_t)4 * FAKE_BYTES);
    assert_int_equal(string_read(&target->runtime, address, SIZE_MAX, &reading.text, NULL), STATUS_UNREADABLE);
    assert_int_equal(reading.text.size_bytes, 0);
    buffer_release(&reading.text);
    free(target);
}

static void test_comparison(void **state) {
    (void)state;
    struct fake_target *target = fake_new(12);
    bool equal = false;
    remote_addr address = fake_ascii(target, 0, "name");
    assert_int_equal(string_equals(&target->runtime, address, "name", &equal), STATUS_OK);
    assert_true(equal);
    assert_int_equal(string_equals(&target->runtime, address, "nam", &equal), STATUS_OK);
    assert_false(equal);
    assert_int_equal(string_equals(&target->runtime, address, "namE", &equal), STATUS_OK);
    assert_false(equal);
    free(target);
}

static void test_repair(void **state) {
    (void)state;
    char text[] = "a\xff\xc3\xa9\xe2\x80z\xed\xa0\x80\xc3";
    string_repair_utf8(text);
    assert_string_equal(text, "a?é??z????");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind),       cmocka_unit_test(test_longer_than_a_chunk),
        cmocka_unit_test(test_nonsense_is_torn), cmocka_unit_test(test_text_that_ends_outside_memory_leaves_nothing),
        cmocka_unit_test(test_comparison),       cmocka_unit_test(test_repair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
