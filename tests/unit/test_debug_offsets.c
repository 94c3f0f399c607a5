/* Debug offsets, whole and broken. That every derived field is right is held against the headers elsewhere
 * (tests/live/test_layouts.py); here, that no table leads strobe astray. */
#include "cpython/layout.h"

#include "debug_offsets_samples.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* `unused`: how many words strobe does not look at, counted by hand from CPython's headers: tp_repr; from 3.14 on
 * debugger_support (6); from 3.15 on current_exception, exc_state, exc_value and two of gc; and where there is a GIL
 * gil_runtime_state_enabled (1), from 3.14 on with tlbc_generation, tlbc_index and co_tlbc (4). */
#define SAMPLE(name, unused, trailing_bytes)                                                                           \
    { #name, name, sizeof name, unused, trailing_bytes }
static const struct sample {
    const char *name;
    const uint64_t *words;
    size_t size_bytes;
    size_t unused;
    size_t trailing_bytes; /* debugger_support, at the end: need not be there */
} samples[] = {
    SAMPLE(sample_3_13, 1 + 1, 0),          SAMPLE(sample_3_13t, 1, 0),
    SAMPLE(sample_3_14, 1 + 6 + 4, 48),     SAMPLE(sample_3_14t, 1 + 6, 48),
    SAMPLE(sample_3_15, 1 + 6 + 5 + 4, 48), SAMPLE(sample_3_15t, 1 + 6 + 5, 48),
};
enum { SAMPLES = sizeof samples / sizeof samples[0], COOKIE_BYTES = 8, FIRST_OFFSET = 2 };

/* The table's first size_bytes in memory of exactly that size, so that a sanitizer sees a read past the end; its word
 * `broken` (behind the cookie) is replaced. */
static enum status decode(const struct sample *sample, size_t size_bytes, size_t broken, uint64_t value,
                          struct layout *layout, struct error *error) {
    char table[DEBUG_OFFSETS_MAX_BYTES] = "xdebugpy";
    memcpy(table + COOKIE_BYTES, sample->words, sample->size_bytes);
    if (broken < sample->size_bytes / sizeof value)
        memcpy(table + COOKIE_BYTES + broken * sizeof value, &value, sizeof value);
    char *exact = test_malloc(size_bytes);
    memcpy(exact, table, size_bytes);
    *error = (struct error){0};
    enum status status = debug_offsets_decode(exact, size_bytes, layout, error);
    test_free(exact);
    return status;
}

static size_t table_bytes(const struct sample *sample) {
    return COOKIE_BYTES + sample->size_bytes;
}

static enum status decode_broken(const struct sample *sample, size_t broken, uint64_t value, struct error *error) {
    struct layout layout;
    enum status status = decode(sample, table_bytes(sample), broken, value, &layout, error);
    if (status != STATUS_OK) {
        assert_int_equal(status, STATUS_NOT_PYTHON);
        assert_int_equal(error->status, STATUS_NOT_PYTHON);
        assert_true(strlen(error->text) > 0);
    }
    return status;
}

static void test_whole(void **state) {
    (void)state;
    for (size_t i = 0; i < SAMPLES; i++) {
        struct layout layout;
        struct error error;
        assert_int_equal(decode(&samples[i], table_bytes(&samples[i]), SIZE_MAX, 0, &layout, &error), STATUS_OK);
        assert_int_equal(layout.version, samples[i].words[0]);
        assert_int_equal(layout.free_threaded, samples[i].words[1]);
        assert_false(layout.newer_than_known);
        assert_false(layout_has(layout.thread.frame));
        assert_true(layout_has(layout.frame.f_funcobj));
        assert_int_equal(layout_has(layout.code.co_tlbc), layout.free_threaded && layout_minor(&layout) >= 14);
    }
}

static void test_unknown_newer(void **state) {
    (void)state;
    struct layout layout;
    struct error error;
    const struct sample *newest = &samples[SAMPLES - 1];
    assert_int_equal(decode(newest, table_bytes(newest), 0, 0x031000a1, &layout, &error), STATUS_OK);
    assert_true(layout.newer_than_known);
    assert_int_equal(layout.version, 0x031000a1);
}

static void test_cut_short(void **state) {
    (void)state;
    for (size_t i = 0; i < SAMPLES; i++) {
        size_t needed = table_bytes(&samples[i]) - samples[i].trailing_bytes;
        for (size_t size_bytes = 1; size_bytes < needed; size_bytes++) {
            struct layout layout;
            struct error error;
            assert_int_equal(decode(&samples[i], size_bytes, SIZE_MAX, 0, &layout, &error), STATUS_NOT_PYTHON);
        }
    }
}

static void test_huge_is_refused(void **state) {
    (void)state;
    static const uint64_t values[] = {UINT64_MAX, UINT64_MAX - 7, INT64_MAX, 1ULL << 32, 1ULL << 31, 17 << 20};
    for (size_t i = 0; i < SAMPLES; i++) {
        for (size_t j = 0; j < sizeof values / sizeof values[0]; j++) {
            size_t accepted = 0;
            struct error error;
            for (size_t word = 0; word < samples[i].size_bytes / sizeof(uint64_t); word++)
                accepted += decode_broken(&samples[i], word, values[j], &error) == STATUS_OK;
            assert_int_equal(accepted, samples[i].unused);
        }
    }
}

/* Zero is no offset in the runtime (it begins with the table), in an object (with its header), or where another field
 * is; only in the interpreter and its collector must strobe believe it. */
static void test_zero(void **state) {
    (void)state;
    for (size_t i = 0; i < SAMPLES; i++) {
        size_t believed = 0;
        for (size_t word = FIRST_OFFSET; word < samples[i].size_bytes / sizeof(uint64_t); word++) {
            struct error error;
            if (samples[i].words[word] != 0)
                believed += decode_broken(&samples[i], word, 0, &error) == STATUS_OK;
        }
        /* The interpreter's 10 fields before its GIL, two generations behind it, and two of gc. */
        assert_true(believed <= samples[i].unused + 10 + 2 + 2);
    }
}

static void test_misaligned(void **state) {
    (void)state;
    for (size_t i = 0; i < SAMPLES; i++) {
        size_t accepted = 0;
        struct error error;
        for (size_t word = FIRST_OFFSET; word < samples[i].size_bytes / sizeof(uint64_t); word++)
            accepted += decode_broken(&samples[i], word, samples[i].words[word] + 1, &error) == STATUS_OK;
        /* co_code_adaptive, ob_sval and gi_frame_state are single bytes. */
        assert_true(accepted <= samples[i].unused + 3);
    }
}

static void test_error_names_the_field(void **state) {
    (void)state;
    struct error error;
    assert_int_equal(decode_broken(&samples[0], FIRST_OFFSET + 2, 1 << 20, &error), STATUS_NOT_PYTHON);
    assert_non_null(strstr(error.text, "runtime.interpreters_head is 1048576"));
}

static void test_header(void **state) {
    (void)state;
    struct error error;
    /* 3.12 and 4.0 have no such table that strobe knows; more than 32 bits are no version. */
    assert_int_equal(decode_broken(&samples[0], 0, 0x030c00f0, &error), STATUS_NOT_PYTHON);
    assert_int_equal(decode_broken(&samples[0], 0, 0x040000f0, &error), STATUS_NOT_PYTHON);
    assert_int_equal(decode_broken(&samples[0], 0, 0x1030d00f0, &error), STATUS_NOT_PYTHON);
    assert_int_equal(decode_broken(&samples[0], 1, 2, &error), STATUS_NOT_PYTHON);
    /* A build cannot be of the other kind. */
    assert_int_equal(decode_broken(&samples[0], 1, 1, &error), STATUS_NOT_PYTHON);
    assert_int_equal(decode_broken(&samples[1], 1, 0, &error), STATUS_NOT_PYTHON);
    assert_false(debug_offsets_present("xdebugpz................", 24));
    assert_false(debug_offsets_present("xdebugpy", 8));
    assert_true(debug_offsets_present("xdebugpy................", 24));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_unknown_newer),
        cmocka_unit_test(test_cut_short),
        cmocka_unit_test(test_huge_is_refused),
        cmocka_unit_test(test_zero),
        cmocka_unit_test(test_misaligned),
        cmocka_unit_test(test_error_names_the_field),
        cmocka_unit_test(test_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
