#include "unwind/seen_calls.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { KEY = 77, OTHER_KEY = 78 };

static const struct code generator = {.serial = 1};
static const struct code other_generator = {.serial = 2};

static void note(struct seen_calls *seen, uint32_t key, int32_t site, const struct code *link, int32_t link_site,
                 int times) {
    struct call_link links[] = {{.code = link, .instruction_bytes = link_site}};
    struct seen_call call = {.key = key, .instruction_bytes = site, .link_count = link != NULL, .links = links};
    while (times-- > 0)
        seen_calls_note(seen, &call, true);
}

static bool knows(const struct seen_calls *seen, int32_t site, const struct code *link, int32_t link_site,
                  bool has_callee) {
    struct call_link links[] = {{.code = link, .instruction_bytes = link_site}};
    struct seen_call call = {.key = KEY, .instruction_bytes = site, .link_count = link != NULL, .links = links};
    return seen_calls_knows(seen, &call, has_callee);
}

static void test_once_is_not_enough(void **state) {
    (void)state;
    struct seen_calls seen = {0};
    assert_false(knows(&seen, 8, NULL, 0, true));
    note(&seen, KEY, 8, NULL, 0, 1);
    assert_false(knows(&seen, 8, NULL, 0, true));
    assert_null(seen_calls_recall(&seen, KEY, 8, false, 0));
    note(&seen, KEY, 8, NULL, 0, 1);
    assert_true(knows(&seen, 8, NULL, 0, true));
    assert_false(knows(&seen, 10, NULL, 0, true));
    seen_calls_release(&seen);
}

static void test_what_is_forgotten_is_not_known(void **state) {
    (void)state;
    struct seen_calls seen = {0};
    seen_calls_forget(&seen);
    note(&seen, KEY, 8, &generator, 4, 100);
    note(&seen, OTHER_KEY, 14, NULL, 0, 5);
    seen_calls_forget(&seen);
    assert_false(knows(&seen, 8, &generator, 4, true));
    assert_null(seen_calls_recall(&seen, OTHER_KEY, 2, false, 0));
    note(&seen, KEY, 8, NULL, 0, 5);
    assert_true(knows(&seen, 8, NULL, 0, true));
    seen_calls_release(&seen);
}

static void test_what_is_rare_beside_others_is_not_known(void **state) {
    (void)state;
    struct seen_calls seen = {0};
    note(&seen, KEY, 8, &generator, 4, 100);
    note(&seen, KEY, 8, &other_generator, 4, 3);
    assert_true(knows(&seen, 8, &generator, 4, true));
    assert_false(knows(&seen, 8, &other_generator, 4, true));
    seen_calls_release(&seen);
}

static void test_a_call_is_made_from_the_next_place(void **state) {
    (void)state;
    struct seen_calls seen = {0};
    note(&seen, KEY, 8, NULL, 0, 5);
    note(&seen, KEY, 20, NULL, 0, 5);
    note(&seen, OTHER_KEY, 14, NULL, 0, 5);
    assert_int_equal(seen_calls_recall(&seen, KEY, 2, false, 0)->instruction_bytes, 8);
    assert_int_equal(seen_calls_recall(&seen, KEY, 8, false, 0)->instruction_bytes, 8);
    assert_int_equal(seen_calls_recall(&seen, KEY, 10, false, 0)->instruction_bytes, 20);
    /* In a loop. */
    assert_int_equal(seen_calls_recall(&seen, KEY, 22, false, 0)->instruction_bytes, 8);
    assert_null(seen_calls_recall(&seen, KEY, 8, true, 0));
    seen_calls_release(&seen);
}

static void test_one_of_several_ways_is_chosen_as_often_as_it_was_seen(void **state) {
    (void)state;
    struct seen_calls seen = {0};
    int first = 0;
    note(&seen, KEY, 8, &generator, 4, 90);
    note(&seen, KEY, 8, &other_generator, 4, 30);
    for (uint32_t i = 0; i < 100; i++)
        first += seen_calls_recall_at(&seen, KEY, 8, true, i * (UINT32_MAX / 100))->links[0].code == &generator;
    assert_in_range(first, 74, 76);
    seen_calls_release(&seen);
}

/* What may be put together of two calls is not recalled, not even when it is all that there is besides. */
static void test_what_contradicts_what_is_seen_more_often_is_not_recalled(void **state) {
    (void)state;
    struct seen_calls seen = {0};
    note(&seen, KEY, 8, &generator, 4, 4);
    /* Even if nothing else was seen. */
    assert_null(seen_calls_recall_at(&seen, KEY, 8, true, 0));
    note(&seen, KEY, 8, &generator, 4, 1);
    assert_non_null(seen_calls_recall_at(&seen, KEY, 8, true, 0));
    note(&seen, KEY, 8, &other_generator, 4, 2);
    /* Too little is known to tell which of them is wrong. */
    assert_null(seen_calls_recall_at(&seen, KEY, 8, true, 0));
    note(&seen, KEY, 8, &generator, 4, 50);
    for (uint32_t i = 0; i < 100; i++)
        assert_ptr_equal(seen_calls_recall_at(&seen, KEY, 8, true, i * (UINT32_MAX / 100))->links[0].code, &generator);
    assert_false(knows(&seen, 8, &other_generator, 4, true));
    seen_calls_release(&seen);
}

static struct call_link named_link = {.code = &generator, .instruction_bytes = 4, .named = true};
static struct call_link other_link = {.code = &other_generator, .instruction_bytes = 4};
static const struct seen_call by_name = {.key = KEY, .instruction_bytes = 8, .link_count = 1, .links = &named_link};
static const struct seen_call by_chance = {.key = KEY, .instruction_bytes = 8, .link_count = 1, .links = &other_link};

/* However much more often the other was seen. */
static void test_what_is_named_outdoes_what_is_not(void **state) {
    (void)state;
    struct seen_calls seen = {0};
    note(&seen, KEY, 8, &other_generator, 4, 100);
    assert_false(seen_calls_is_outdone(&seen, &by_chance));
    assert_ptr_equal(seen_calls_recall_at(&seen, KEY, 8, true, 0)->links[0].code, &other_generator);
    seen_calls_note(&seen, &by_name, true);
    assert_true(seen_calls_is_outdone(&seen, &by_chance));
    assert_false(seen_calls_is_outdone(&seen, &by_name));
    assert_false(seen_calls_knows(&seen, &by_chance, true));
    assert_null(seen_calls_recall_at(&seen, KEY, 8, true, 0));
    for (int i = 0; i < 5; i++)
        seen_calls_note(&seen, &by_name, true);
    for (uint32_t i = 0; i < 100; i++)
        assert_ptr_equal(seen_calls_recall_at(&seen, KEY, 8, true, i * (UINT32_MAX / 100))->links[0].code, &generator);
    seen_calls_release(&seen);
}

static void test_what_was_seen_itself_is_not_unheard_of(void **state) {
    (void)state;
    struct seen_calls seen = {0};
    assert_false(seen_calls_is_unheard_of(&seen, &by_chance));
    seen_calls_note(&seen, &by_name, true);
    seen_calls_note(&seen, &by_chance, true);
    assert_true(seen_calls_is_unheard_of(&seen, &by_chance));
    seen_calls_note(&seen, &by_chance, true);
    assert_false(seen_calls_is_unheard_of(&seen, &by_chance));
    assert_true(seen_calls_is_outdone(&seen, &by_chance));
    seen_calls_release(&seen);
}

/* What is guessed is not recalled until it was seen more often than by chance. */
static void test_what_is_guessed_is_believed_late(void **state) {
    (void)state;
    struct seen_calls seen = {0};
    struct call_link link = {.code = &generator, .instruction_bytes = 4};
    struct seen_call call = {.key = KEY, .instruction_bytes = 8, .link_count = 1, .links = &link, .guessed = true};
    for (int i = 0; i < 15; i++) {
        seen_calls_note(&seen, &call, false);
        assert_null(seen_calls_recall_at(&seen, KEY, 8, true, 0));
        assert_false(seen_calls_knows(&seen, &call, false));
    }
    seen_calls_note(&seen, &call, false);
    assert_non_null(seen_calls_recall_at(&seen, KEY, 8, true, 0));
    assert_true(seen_calls_knows(&seen, &call, false));
    seen_calls_release(&seen);
}

static void test_what_has_more_links_is_recalled_by_its_beginning(void **state) {
    (void)state;
    struct seen_calls seen = {0};
    struct call_link links[] = {{.code = &generator, .instruction_bytes = 4},
                                {.code = &other_generator, .instruction_bytes = 6}};
    struct seen_call longer = {.key = KEY, .instruction_bytes = 8, .link_count = 2, .links = links};
    struct seen_call beginning = {.key = KEY, .instruction_bytes = 8, .link_count = 1, .links = links};
    struct seen_call other = {.key = KEY, .instruction_bytes = 8, .link_count = 1, .links = links + 1};
    note(&seen, KEY, 8, &generator, 4, 5);
    assert_null(seen_calls_recall_longer(&seen, &beginning, 0));
    for (int i = 0; i < 5; i++)
        seen_calls_note(&seen, &longer, false);
    assert_int_equal(seen_calls_recall_longer(&seen, &beginning, 0)->link_count, 2);
    assert_null(seen_calls_recall_longer(&seen, &other, 0));
    assert_null(seen_calls_recall_longer(&seen, &longer, 0));
    seen_calls_release(&seen);
}

static void test_what_waits_for_many_is_known_when_it_was_seen_twice(void **state) {
    (void)state;
    struct seen_calls seen = {0};
    struct call_link links[SEEN_CALLS_LONG_LINKS];
    for (size_t i = 0; i < SEEN_CALLS_LONG_LINKS; i++)
        links[i] = (struct call_link){.code = &generator, .instruction_bytes = 4};
    struct seen_call call = {.key = KEY, .instruction_bytes = 8, .link_count = SEEN_CALLS_LONG_LINKS, .links = links};
    seen_calls_note(&seen, &call, true);
    assert_null(seen_calls_recall_at(&seen, KEY, 8, true, 0));
    seen_calls_note(&seen, &call, true);
    assert_non_null(seen_calls_recall_at(&seen, KEY, 8, true, 0));
    /* Not beside another that was seen as often. */
    links[0].code = &other_generator;
    seen_calls_note(&seen, &call, true);
    assert_null(seen_calls_recall_at(&seen, KEY, 8, true, 0));
    seen_calls_release(&seen);
}

/* Where the innermost of the links runs, it is at another place each time. */
static void test_the_place_of_what_runs_does_not_matter(void **state) {
    (void)state;
    struct seen_calls seen = {0};
    note(&seen, KEY, 8, &generator, 4, 5);
    assert_false(knows(&seen, 8, &generator, 6, true));
    assert_true(knows(&seen, 8, &generator, 6, false));
    seen_calls_release(&seen);
}

static void test_a_site_is_plain_until_it_runs_something(void **state) {
    (void)state;
    struct seen_calls seen = {0};
    const struct seen_call call = {.key = KEY, .instruction_bytes = 8};
    assert_false(seen_calls_is_plain(&seen, &call));
    note(&seen, KEY, 8, NULL, 0, 5);
    assert_true(seen_calls_is_plain(&seen, &call));
    note(&seen, KEY, 8, &generator, 4, 1);
    assert_false(seen_calls_is_plain(&seen, &call));
    seen_calls_release(&seen);
}

/* More calls than there is room for: what is seen all the time stays. */
static void test_what_is_frequent_stays(void **state) {
    (void)state;
    struct seen_calls seen = {0};
    for (uint32_t i = 0; i < 100000; i++) {
        note(&seen, seen_calls_key(i, 5), 4, &generator, 4, 1);
        note(&seen, KEY, 8, NULL, 0, 1);
    }
    assert_true(knows(&seen, 8, NULL, 0, true));
    seen_calls_release(&seen);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_once_is_not_enough),
        cmocka_unit_test(test_what_is_forgotten_is_not_known),
        cmocka_unit_test(test_what_is_rare_beside_others_is_not_known),
        cmocka_unit_test(test_a_call_is_made_from_the_next_place),
        cmocka_unit_test(test_one_of_several_ways_is_chosen_as_often_as_it_was_seen),
        cmocka_unit_test(test_what_contradicts_what_is_seen_more_often_is_not_recalled),
        cmocka_unit_test(test_what_is_named_outdoes_what_is_not),
        cmocka_unit_test(test_what_was_seen_itself_is_not_unheard_of),
        cmocka_unit_test(test_what_is_guessed_is_believed_late),
        cmocka_unit_test(test_what_has_more_links_is_recalled_by_its_beginning),
        cmocka_unit_test(test_what_waits_for_many_is_known_when_it_was_seen_twice),
        cmocka_unit_test(test_the_place_of_what_runs_does_not_matter),
        cmocka_unit_test(test_a_site_is_plain_until_it_runs_something),
        cmocka_unit_test(test_what_is_frequent_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
