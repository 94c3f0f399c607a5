#include "unwind/call_sites.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* No bytecode: every instruction could call. */
static struct code_cache no_cache;
static const struct code caller = {.serial = 1, .bytecode_bytes = 40, .steps_known = true};
static const struct code callee = {.serial = 2};
static const struct code other = {.serial = 3};

static void note(struct call_sites *sites, int32_t instruction_bytes, const struct code *code,
                 enum call_evidence evidence, int times) {
    while (times-- > 0)
        assert_int_equal(call_sites_note(sites, &caller, instruction_bytes, code, evidence), STATUS_OK);
}

static int32_t guess(const struct call_sites *sites, int32_t instruction_bytes) {
    return call_sites_guess(sites, &no_cache, &caller, &callee, instruction_bytes);
}

static void test_a_caller_that_has_gone_on_called_from_before(void **state) {
    (void)state;
    struct call_sites sites = {0};
    note(&sites, 8, &callee, CALL_CERTAIN, 5);
    note(&sites, 20, &callee, CALL_CERTAIN, 5);
    assert_int_equal(guess(&sites, 8), 8);
    assert_int_equal(guess(&sites, 14), 8);
    assert_int_equal(guess(&sites, 20), 20);
    assert_int_equal(guess(&sites, 38), 20);
    /* In a loop. */
    assert_int_equal(guess(&sites, 2), 20);
    call_sites_release(&sites);
}

/* A caller and a reader in step: whenever the reader looks, the callee runs, and the caller has gone on since. */
static void test_what_was_seen_often_is_not_what_is_certain(void **state) {
    (void)state;
    struct call_sites sites = {0};
    note(&sites, 20, &callee, CALL_LIKELY, 1000);
    assert_int_equal(guess(&sites, 20), 20);
    note(&sites, 20, &other, CALL_CERTAIN, 3);
    note(&sites, 8, &callee, CALL_CERTAIN, 3);
    assert_int_equal(guess(&sites, 20), 8);
    assert_true(call_sites_knows(&sites, &caller, 8, &callee));
    assert_false(call_sites_knows(&sites, &caller, 20, &callee));
    call_sites_release(&sites);
}

static void test_a_place_that_calls_something_else_is_no_guess(void **state) {
    (void)state;
    struct call_sites sites = {0};
    note(&sites, 20, &other, CALL_CERTAIN, 1);
    assert_int_equal(guess(&sites, 20), 18);
    note(&sites, 20, &callee, CALL_LIKELY, 1000);
    assert_int_equal(guess(&sites, 20), 18);
    call_sites_release(&sites);
}

/* A handful of errors among many good looks is forgotten, even of looks that are seldom wrong. */
static void test_errors_are_outvoted(void **state) {
    (void)state;
    struct call_sites sites = {0};
    note(&sites, 20, &callee, CALL_CERTAIN, 1);
    assert_false(call_sites_knows(&sites, &caller, 20, &callee));
    assert_int_equal(guess(&sites, 20), 20);
    note(&sites, 20, &callee, CALL_CERTAIN, 3);
    assert_true(call_sites_knows(&sites, &caller, 20, &callee));
    note(&sites, 8, &callee, CALL_CERTAIN, 200);
    assert_false(call_sites_knows(&sites, &caller, 20, &callee));
    assert_int_equal(guess(&sites, 20), 8);
    call_sites_release(&sites);
}

static void test_copies_go_before_coincidence(void **state) {
    (void)state;
    struct call_sites sites = {0};
    note(&sites, 20, &callee, CALL_LIKELY, 1000);
    note(&sites, 8, &callee, CALL_COPIED, 1);
    assert_int_equal(guess(&sites, 20), 8);
    note(&sites, 20, &callee, CALL_COPIED, 1);
    note(&sites, 8, &callee, CALL_COPIED, 30);
    assert_int_equal(guess(&sites, 20), 8);
    assert_false(call_sites_is_settled(&sites, &caller, &callee));
    note(&sites, 20, &callee, CALL_CERTAIN, 3);
    assert_int_equal(guess(&sites, 8), 20);
    assert_true(call_sites_is_settled(&sites, &caller, &callee));
    call_sites_release(&sites);
}

static void test_an_instruction_can_call_several(void **state) {
    (void)state;
    struct call_sites sites = {0};
    note(&sites, 20, &callee, CALL_CERTAIN, 5);
    note(&sites, 20, &other, CALL_CERTAIN, 5);
    assert_int_equal(guess(&sites, 30), 20);
    assert_int_equal(call_sites_guess(&sites, &no_cache, &caller, &other, 30), 20);
    call_sites_release(&sites);
}

static void test_questions_end(void **state) {
    (void)state;
    struct call_sites sites = {0};
    int asked = 0;
    assert_false(call_sites_is_settled(&sites, &caller, &callee));
    for (int i = 0; i < 10000; i++)
        asked += call_sites_asks(&sites, &caller, &callee);
    assert_true(asked > 10 && asked < 1000);
    assert_true(call_sites_is_settled(&sites, &caller, &callee));
    call_sites_release(&sites);
}

static void test_many_pairs_are_bounded(void **state) {
    (void)state;
    struct call_sites sites = {0};
    for (uint32_t i = 0; i < 100000; i++) {
        const struct code code = {.serial = 10 + i};
        note(&sites, 8, &code, CALL_CERTAIN, 1);
    }
    assert_true(sites.sets_by_pair.count <= 1 << 14);
    assert_true(sites.callees.count <= 1 << 16);
    call_sites_forget(&sites);
    assert_int_equal(guess(&sites, 30), 30);
    call_sites_release(&sites);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_caller_that_has_gone_on_called_from_before),
        cmocka_unit_test(test_what_was_seen_often_is_not_what_is_certain),
        cmocka_unit_test(test_a_place_that_calls_something_else_is_no_guess),
        cmocka_unit_test(test_errors_are_outvoted),
        cmocka_unit_test(test_copies_go_before_coincidence),
        cmocka_unit_test(test_an_instruction_can_call_several),
        cmocka_unit_test(test_questions_end),
        cmocka_unit_test(test_many_pairs_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
