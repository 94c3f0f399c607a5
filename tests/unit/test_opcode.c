#include "cpython/opcode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Numbers as in CPython's Include/opcode.h (to 3.12) and Include/opcode_ids.h. */
static void test_known_numbers(void **state) {
    (void)state;
    assert_int_equal(opcode_family(8, 131), OPCODE_CALL);               /* CALL_FUNCTION */
    assert_int_equal(opcode_family(10, 72), OPCODE_RESUMES_GENERATOR);  /* YIELD_FROM */
    assert_int_equal(opcode_family(11, 171), OPCODE_CALL);              /* CALL */
    assert_int_equal(opcode_family(11, 23), OPCODE_CALL);               /* CALL_PY_EXACT_ARGS */
    assert_int_equal(opcode_family(12, 65), OPCODE_RESUMES_GENERATOR);  /* FOR_ITER_GEN */
    assert_int_equal(opcode_family(12, 77), OPCODE_CALLS_PYTHON);       /* LOAD_ATTR_PROPERTY */
    assert_int_equal(opcode_family(13, 244), OPCODE_CALL);              /* INSTRUMENTED_CALL */
    assert_int_equal(opcode_family(13, 254), OPCODE_HIDDEN);            /* INSTRUMENTED_LINE */
    assert_int_equal(opcode_family(15, 4), OPCODE_CALL);                /* CALL_FUNCTION_EX */
    assert_int_equal(opcode_family(15, 83), OPCODE_OTHER);              /* LOAD_FAST */
    assert_int_equal(opcode_family(15, 111), OPCODE_BY_THE_WAY);        /* STORE_FAST */
    assert_int_equal(opcode_family(15, 203), OPCODE_RESUMES_GENERATOR); /* SEND_GEN */
    assert_int_equal(opcode_family(13, 0), OPCODE_CACHE);
    assert_int_equal(opcode_family(13, 224), OPCODE_INVALID);
}

static void test_unknown_versions_hide_everything(void **state) {
    (void)state;
    static const uint32_t minors[] = {0, 7, 16, UINT32_MAX};
    for (size_t i = 0; i < sizeof minors / sizeof minors[0]; i++)
        for (int opcode = 0; opcode < OPCODES; opcode++)
            assert_int_equal(opcode_family(minors[i], (uint8_t)opcode), OPCODE_HIDDEN);
}

/* Whatever the version: a base is its own base, and all its forms are alike. */
static void test_forms_are_as_their_base(void **state) {
    (void)state;
    for (uint32_t minor = OPCODE_FIRST_MINOR; minor <= OPCODE_LAST_MINOR; minor++) {
        const struct opcode *table = opcode_table(minor);
        for (int i = 0; i < OPCODES; i++) {
            const struct opcode *base = &table[table[i].base];
            if (table[i].family == OPCODE_INVALID)
                continue;
            assert_int_equal(base->base, table[i].base);
            assert_int_equal(base->family, table[i].family);
            assert_int_equal(base->enters, table[i].enters);
            assert_int_equal(base->caches, table[i].caches);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_numbers),
        cmocka_unit_test(test_unknown_versions_hide_everything),
        cmocka_unit_test(test_forms_are_as_their_base),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
