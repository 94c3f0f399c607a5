#include "unwind/seen_chains.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const struct code main_code = {.serial = 1}, one = {.serial = 2}, other = {.serial = 3}, leaf = {.serial = 4};

/* main, then `depth` frames of `code`, then the leaf. */
static void note(struct seen_chains *chains, const struct code *code, size_t depth, int times) {
    struct tracked_frame frames[64] = {{.code = &main_code, .instruction_bytes = 2}};
    for (size_t i = 1; i <= depth; i++)
        frames[i] = (struct tracked_frame){.code = code, .instruction_bytes = 10};
    frames[depth + 1] = (struct tracked_frame){.code = &leaf};
    while (times-- > 0)
        assert_int_equal(seen_chains_note(chains, frames, depth + 2, 0, 0), STATUS_OK);
}

static uint32_t recall(const struct seen_chains *chains, const struct code *const *codes, size_t count, size_t depth,
                       uint32_t random) {
    uint64_t times = 0;
    uint32_t link = seen_chains_recall(chains, codes, count, depth, random, &times);
    assert_int_equal(link != 0, times > 0);
    return link;
}

/* How many callers of `code`s there are from the link on, main not counted. */
static size_t count(const struct seen_chains *chains, uint32_t link, const struct code *code) {
    size_t found = 0;
    for (; link != 0 && chains->links[link].code == code; link = chains->links[link].caller)
        found++;
    assert_ptr_equal(chains->links[link].code, &main_code);
    assert_int_equal(chains->links[link].caller, 0);
    return found;
}

static void test_callers_are_as_they_were_at_that_depth(void **state) {
    (void)state;
    struct seen_chains chains = {0};
    const struct code *codes[] = {&leaf, &one};
    assert_int_equal(recall(&chains, codes, 1, 5, 0), 0);
    note(&chains, &one, 5, 1);
    note(&chains, &one, 9, 1);
    assert_int_equal(count(&chains, recall(&chains, codes, 1, 6, 0), &one), 5);
    assert_int_equal(count(&chains, recall(&chains, codes, 2, 10, 0), &one), 8);
    assert_int_equal(recall(&chains, codes, 1, 7, 0), 0);
    /* The outermost has no caller. */
    assert_int_equal(recall(&chains, (const struct code *const[]){&main_code}, 1, 0, 0), 0);
    seen_chains_release(&chains);
}

static void test_what_is_known_of_the_callers_decides(void **state) {
    (void)state;
    struct seen_chains chains = {0};
    const struct code *codes[] = {&leaf, &one, &one}, *others[] = {&leaf, &other}, *mixed[] = {&leaf, &one, &other};
    note(&chains, &one, 5, 30);
    note(&chains, &other, 5, 100);
    for (uint32_t random = 0; random < 8; random++) {
        uint32_t any = random << 29;
        assert_int_equal(count(&chains, recall(&chains, codes, 3, 6, any), &one), 3);
        assert_int_equal(count(&chains, recall(&chains, others, 2, 6, any), &other), 4);
        assert_int_equal(recall(&chains, mixed, 3, 6, any), 0);
    }
    seen_chains_release(&chains);
}

static void test_what_was_seen_more_often_is_likelier(void **state) {
    (void)state;
    struct seen_chains chains = {0};
    const struct code *codes[] = {&leaf};
    int ones = 0;
    note(&chains, &one, 5, 10);
    note(&chains, &other, 5, 30);
    for (uint32_t i = 0; i < 400; i++) {
        uint32_t link = recall(&chains, codes, 1, 6, i * (UINT32_MAX / 400));
        ones += chains.links[link].code == &one;
    }
    assert_in_range(ones, 95, 105);
    seen_chains_release(&chains);
}

static void test_errors_are_outvoted(void **state) {
    (void)state;
    struct seen_chains chains = {0};
    const struct code *codes[] = {&leaf, &one};
    note(&chains, &one, 5, 1);
    note(&chains, &other, 5, 100);
    assert_int_equal(recall(&chains, codes, 2, 6, 0), 0);
    seen_chains_release(&chains);
}

/* Ever new ones: what is kept is bounded. */
static void test_it_is_bounded(void **state) {
    (void)state;
    struct seen_chains chains = {0};
    struct code codes[64] = {0};
    struct tracked_frame frames[64] = {0};
    for (uint32_t round = 0; round < 4000; round++) {
        for (uint32_t i = 0; i < 64; i++) {
            codes[i].serial = 1 + round * 64 + i;
            frames[i] = (struct tracked_frame){.code = &codes[i]};
        }
        assert_int_equal(seen_chains_note(&chains, frames, 64, 0, 0), STATUS_OK);
    }
    assert_true(chains.link_count <= 1 << 16);
    const struct code *leaf_codes[] = {&codes[63]};
    assert_int_not_equal(recall(&chains, leaf_codes, 1, 63, 0), 0);
    seen_chains_release(&chains);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_callers_are_as_they_were_at_that_depth),
        cmocka_unit_test(test_what_is_known_of_the_callers_decides),
        cmocka_unit_test(test_what_was_seen_more_often_is_likelier),
        cmocka_unit_test(test_errors_are_outvoted),
        cmocka_unit_test(test_it_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
