/* Tables made by hand: what the standard library's never show (tests/live/test_linetables.py holds those). */
#include "cpython/linetable.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A table from its bytes, in memory of exactly their size, so that a sanitizer or valgrind sees a read past the end. */
#define TABLE(format, first_line, ...)                                                                                 \
    make_table(format, first_line, (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}))

static struct linetable make_table(enum linetable_format format, int32_t first_line, const uint8_t *bytes,
                                   size_t size_bytes) {
    uint8_t *copy = test_malloc(size_bytes);
    memcpy(copy, bytes, size_bytes);
    return (struct linetable){format, copy, size_bytes, first_line};
}

static void release_table(struct linetable *table) {
    test_free((void *)table->bytes);
    table->bytes = NULL;
}

static void expect_at(const struct linetable *table, uint32_t instruction_bytes, struct source_position expected) {
    struct source_position got = {-2, -2, -2, -2};
    assert_true(linetable_lookup(table, instruction_bytes, &got));
    assert_int_equal(got.line, expected.line);
    assert_int_equal(got.end_line, expected.end_line);
    assert_int_equal(got.column, expected.column);
    assert_int_equal(got.end_column, expected.end_column);
}

static void expect_line(const struct linetable *table, uint32_t instruction_bytes, int32_t line) {
    expect_at(table, instruction_bytes, (struct source_position){line, line, -1, -1});
}

static void expect_nothing(const struct linetable *table, uint32_t instruction_bytes) {
    static const struct source_position none = {-1, -1, -1, -1};
    struct source_position got = {-2, -2, -2, -2};
    assert_false(linetable_lookup(table, instruction_bytes, &got));
    assert_memory_equal(&got, &none, sizeof got);
}

static void test_formats_by_version(void **state) {
    (void)state;
    assert_int_equal(linetable_format_of(8), LINETABLE_LNOTAB);
    assert_int_equal(linetable_format_of(9), LINETABLE_LNOTAB);
    assert_int_equal(linetable_format_of(10), LINETABLE_LINES);
    assert_int_equal(linetable_format_of(11), LINETABLE_LOCATIONS);
    assert_int_equal(linetable_format_of(16), LINETABLE_LOCATIONS);
}

static void test_empty_tables(void **state) {
    (void)state;
    struct linetable table = {LINETABLE_LNOTAB, NULL, 0, 7};
    expect_line(&table, 0, 7);
    expect_line(&table, 1000000, 7);
    table.format = LINETABLE_LINES;
    expect_nothing(&table, 0);
    table.format = LINETABLE_LOCATIONS;
    expect_nothing(&table, 0);
}

static void test_lnotab_pairs_count_from_where_they_end(void **state) {
    (void)state;
    /* The function's own example in Objects/lnotab_notes.txt has the form {0,1},{6,1},{44,5},…: first line by delta 0
     */
    struct linetable table = TABLE(LINETABLE_LNOTAB, 1, 0, 1, 6, 1, 44, 5, 50, 0x80, 0, 0x80);
    expect_line(&table, 0, 2);
    expect_line(&table, 5, 2);
    expect_line(&table, 6, 3);
    expect_line(&table, 49, 3);
    expect_line(&table, 50, 8);
    expect_line(&table, 99, 8);
    expect_line(&table, 100, 8 - 256);
    expect_line(&table, UINT32_MAX - 1, 8 - 256);
    release_table(&table);
}

static void test_lnotab_ignores_an_odd_byte(void **state) {
    (void)state;
    struct linetable table = TABLE(LINETABLE_LNOTAB, 1, 2, 1, 2);
    expect_line(&table, 4, 2);
    release_table(&table);
}

static void test_lines_pairs_have_their_own_line(void **state) {
    (void)state;
    /* long jump forwards by a range of no length; an instruction without a line; a step back */
    struct linetable table = TABLE(LINETABLE_LINES, 10, 2, 0, 0, 127, 4, 1, 2, 0x80, 254, 0xfe);
    expect_line(&table, 0, 10);
    expect_line(&table, 2, 138);
    expect_line(&table, 5, 138);
    expect_line(&table, 6, -1);
    expect_line(&table, 8, 136);
    expect_line(&table, 261, 136);
    expect_nothing(&table, 262);
    release_table(&table);
}

static void test_lines_without_length_or_cut(void **state) {
    (void)state;
    struct linetable table = TABLE(LINETABLE_LINES, 10, 0, 1, 0, 0x80, 0, 5);
    expect_nothing(&table, 0);
    release_table(&table);
    table = TABLE(LINETABLE_LINES, 10, 2, 1, 2);
    expect_line(&table, 1, 11);
    expect_nothing(&table, 2);
    release_table(&table);
}

static uint8_t first_byte(unsigned code, unsigned units) {
    return (uint8_t)(0x80 | code << 3 | (units - 1));
}

static void test_locations_of_every_kind(void **state) {
    (void)state;
    struct linetable table = TABLE(LINETABLE_LOCATIONS, 100, first_byte(9, 1), 0x7f, /* column 79, 15 wide */
                                   first_byte(12, 8), 1, 127,                        /* two lines down */
                                   first_byte(13, 2), 0x03,                          /* one line up */
                                   first_byte(15, 1),                                /* nothing known */
                                   first_byte(14, 1), 0x42, 0x01, 0x05, 0x41, 0x02, 0x00);
    expect_at(&table, 0, (struct source_position){100, 100, 79, 94});
    expect_at(&table, 1, (struct source_position){100, 100, 79, 94});
    expect_at(&table, 2, (struct source_position){102, 102, 1, 127});
    expect_at(&table, 17, (struct source_position){102, 102, 1, 127});
    expect_at(&table, 18, (struct source_position){101, 101, -1, -1});
    expect_at(&table, 22, (struct source_position){-1, -1, -1, -1});
    /* 0x42 0x01: 2 + 64, a step of 33; five lines long; column (1 + 128) - 1; no end column */
    expect_at(&table, 24, (struct source_position){134, 139, 128, -1});
    expect_nothing(&table, 26);
    release_table(&table);
}

static void test_locations_cut_anywhere(void **state) {
    (void)state;
    static const uint8_t whole[] = {0xf0, 0x42, 0x01, 0x45, 0x01, 0x41, 0x02, 0x41, 0x03};
    for (size_t size_bytes = 1; size_bytes < sizeof whole; size_bytes++) {
        struct linetable table = make_table(LINETABLE_LOCATIONS, 1, whole, size_bytes);
        expect_nothing(&table, 0);
        release_table(&table);
    }
    struct linetable table = make_table(LINETABLE_LOCATIONS, 1, whole, sizeof whole);
    expect_at(&table, 0, (struct source_position){34, 34 + 69, 128, 192});
    release_table(&table);
    table = TABLE(LINETABLE_LOCATIONS, 1, first_byte(0, 1));
    expect_nothing(&table, 0);
    release_table(&table);
    table = TABLE(LINETABLE_LOCATIONS, 1, first_byte(10, 1), 1);
    expect_nothing(&table, 0);
    release_table(&table);
}

static void test_locations_keep_what_stands_before_the_damage(void **state) {
    (void)state;
    /* no first byte where one must be */
    struct linetable table = TABLE(LINETABLE_LOCATIONS, 5, first_byte(13, 1), 2, 0x12, first_byte(13, 1), 2);
    expect_line(&table, 0, 6);
    expect_nothing(&table, 2);
    expect_nothing(&table, 4);
    release_table(&table);
    /* a first byte inside an entry */
    table = TABLE(LINETABLE_LOCATIONS, 5, first_byte(13, 1), 2, first_byte(11, 1), 3, first_byte(13, 1), 2);
    expect_line(&table, 1, 6);
    expect_nothing(&table, 2);
    release_table(&table);
}

static void test_varints_of_any_length(void **state) {
    (void)state;
    /* The largest value that 32 bits hold: a step of -0x7fffffff lines. */
    struct linetable table =
        TABLE(LINETABLE_LOCATIONS, INT32_MAX, first_byte(13, 1), 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x03);
    expect_line(&table, 0, 0);
    release_table(&table);
    /* A seventh group says nothing that fits. */
    table = TABLE(LINETABLE_LOCATIONS, 1, first_byte(13, 1), 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x00);
    expect_nothing(&table, 0);
    release_table(&table);
    uint8_t endless[4096];
    memset(endless, 0x7f, sizeof endless);
    endless[0] = first_byte(14, 1);
    table = make_table(LINETABLE_LOCATIONS, 1, endless, sizeof endless);
    expect_nothing(&table, 0);
    release_table(&table);
}

static void test_lines_wrap_instead_of_overflowing(void **state) {
    (void)state;
    struct linetable table = TABLE(LINETABLE_LNOTAB, INT32_MAX, 2, 1);
    expect_line(&table, 2, INT32_MIN);
    release_table(&table);
    table = TABLE(LINETABLE_LINES, INT32_MIN, 2, 0xff);
    expect_line(&table, 0, INT32_MAX);
    release_table(&table);
    table = TABLE(LINETABLE_LOCATIONS, INT32_MAX, first_byte(14, 1), 2, 1, 0, 0);
    expect_at(&table, 0, (struct source_position){INT32_MIN, INT32_MIN + 1, -1, -1});
    release_table(&table);
}

static void test_instructions_far_behind_the_table(void **state) {
    (void)state;
    struct linetable table = TABLE(LINETABLE_LOCATIONS, 1, first_byte(13, 8), 0);
    expect_line(&table, 15, 1);
    expect_nothing(&table, 16);
    expect_nothing(&table, UINT32_MAX);
    table.format = LINETABLE_LNOTAB;
    expect_nothing(&table, UINT32_MAX); /* no bytecode has an instruction there */
    release_table(&table);
}

static void test_a_table_beyond_all_addresses(void **state) {
    (void)state;
    /* 255 bytes a pair: one pair more than a 32-bit offset can hold */
    size_t pairs = UINT32_MAX / 255 + 1;
    uint8_t *bytes = calloc(pairs, 2);
    assert_non_null(bytes);
    for (size_t i = 0; i < pairs; i++)
        bytes[2 * i] = 255;
    struct linetable table = {LINETABLE_LINES, bytes, pairs * 2, 3};
    expect_line(&table, UINT32_MAX - 1, 3);
    expect_nothing(&table, UINT32_MAX);
    table.format = LINETABLE_LNOTAB;
    expect_line(&table, UINT32_MAX - 1, 3);
    expect_nothing(&table, UINT32_MAX);
    free(bytes);
}

static void test_walk_gives_ranges_without_gaps(void **state) {
    (void)state;
    struct linetable table = TABLE(LINETABLE_LNOTAB, 1, 0, 1, 6, 1, 0, 100, 44, 5);
    static const struct linetable_range expected[] = {
        {0, 6, {2, 2, -1, -1}}, {6, 50, {103, 103, -1, -1}}, {50, UINT32_MAX, {108, 108, -1, -1}}};
    struct linetable_cursor cursor;
    struct linetable_range range;
    linetable_begin(&cursor, &table);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_true(linetable_next(&cursor, &range));
        assert_memory_equal(&range, &expected[i], sizeof range);
    }
    assert_false(linetable_next(&cursor, &range));
    assert_false(linetable_next(&cursor, &range));
    release_table(&table);
}

static void test_walk_ends_at_damage_for_good(void **state) {
    (void)state;
    struct linetable table = TABLE(LINETABLE_LOCATIONS, 1, first_byte(13, 1), 0, 0x00, first_byte(15, 1));
    struct linetable_cursor cursor;
    struct linetable_range range;
    linetable_begin(&cursor, &table);
    assert_true(linetable_next(&cursor, &range));
    assert_false(linetable_next(&cursor, &range));
    assert_false(linetable_next(&cursor, &range));
    release_table(&table);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats_by_version),
        cmocka_unit_test(test_empty_tables),
        cmocka_unit_test(test_lnotab_pairs_count_from_where_they_end),
        cmocka_unit_test(test_lnotab_ignores_an_odd_byte),
        cmocka_unit_test(test_lines_pairs_have_their_own_line),
        cmocka_unit_test(test_lines_without_length_or_cut),
        cmocka_unit_test(test_locations_of_every_kind),
        cmocka_unit_test(test_locations_cut_anywhere),
        cmocka_unit_test(test_locations_keep_what_stands_before_the_damage),
        cmocka_unit_test(test_varints_of_any_length),
        cmocka_unit_test(test_lines_wrap_instead_of_overflowing),
        cmocka_unit_test(test_instructions_far_behind_the_table),
        cmocka_unit_test(test_a_table_beyond_all_addresses),
        cmocka_unit_test(test_walk_gives_ranges_without_gaps),
        cmocka_unit_test(test_walk_ends_at_damage_for_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
