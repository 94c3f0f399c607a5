/* Which bytecode a frame of a free-threaded build runs: the code object's own, or its thread's copy. */
#include "cpython/code.h"

#include "fake_target.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { OWN = 0x1000, COPY = 0x2000 };

/* The array as in 3.14's Include/cpython/code.h: its size, the code's own bytecode, threads 1 and 2, of which the first
 * has no copy. */
static remote_addr put_copies(struct fake_target *target, uint64_t size) {
    remote_addr array = fake_allocate(target, 4 * sizeof(uint64_t));
    const uint64_t words[] = {size, OWN, 0, COPY};
    fake_put(target, array, words, sizeof words);
    return array;
}

static void test_copies_of_threads(void **state) {
    (void)state;
    struct fake_target *target = fake_new(12);
    struct code code = {.bytecode = OWN, .tlbc = put_copies(target, 3)};
    static const remote_addr expected[] = {OWN, OWN, COPY};
    for (int32_t i = 0; i < 3; i++) {
        remote_addr start = 0;
        assert_int_equal(code_bytecode_start(&target->runtime, &code, i, &start), STATUS_OK);
        assert_int_equal(start, expected[i]);
    }
    free(target);
}

static void test_none_without_an_array(void **state) {
    (void)state;
    struct fake_target *target = fake_new(12);
    struct code code = {.bytecode = OWN};
    remote_addr start = 0;
    assert_int_equal(code_bytecode_start(&target->runtime, &code, 2, &start), STATUS_OK);
    assert_int_equal(start, OWN);
    free(target);
}

static void test_arrays_that_cannot_be(void **state) {
    (void)state;
    struct fake_target *target = fake_new(12);
    struct code code = {.bytecode = OWN, .tlbc = put_copies(target, 3)};
    remote_addr start = 0;
    assert_int_equal(code_bytecode_start(&target->runtime, &code, 3, &start), STATUS_TORN);
    code.tlbc = put_copies(target, UINT64_MAX);
    assert_int_equal(code_bytecode_start(&target->runtime, &code, 1, &start), STATUS_TORN);
    code.tlbc = FAKE_START + FAKE_BYTES;
    assert_int_equal(code_bytecode_start(&target->runtime, &code, 1, &start), STATUS_UNREADABLE);
    free(target);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies_of_threads),
        cmocka_unit_test(test_none_without_an_array),
        cmocka_unit_test(test_arrays_that_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
