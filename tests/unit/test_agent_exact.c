#include "sampler/agent_exact.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs those four before it
#include <cmocka.h>

static void count(struct agent_exact *exact, uint32_t slot, uint32_t site, int64_t live_bytes, uint64_t peak_id,
                  int64_t before_bytes) {
    const struct wire_counts counts = {.slot = slot,
                                       .site = site,
                                       .live_bytes = live_bytes,
                                       .live_count = live_bytes > 0 ? 1 : -1,
                                       .peak_id = peak_id,
                                       .before_bytes = before_bytes};
    assert_int_equal(agent_exact_count(exact, &counts), STATUS_OK);
}

static struct sample_held held(struct agent_exact *exact, uint32_t site, uint64_t peak_id) {
    uint64_t index = 0;
    agent_exact_sum_up(exact, peak_id);
    assert_true(map_get(&exact->numbers, site, &index));
    return agent_exact_held(&exact->sites[index]);
}

/* A thread gives out, another one gives back, on either side of a maximum, and told in any order. */
static void test_peaks(void **state) {
    (void)state;
    struct agent_exact exact = {0};
    assert_int_equal(agent_exact_define(&exact, 2, 7), STATUS_OK);
    count(&exact, 0, 2, 1000, 1, 0);
    /* Nothing has changed since the maximum number 2: what is there was there. */
    assert_int_equal(held(&exact, 2, 2).peak_bytes, 1000);
    /* 300 more before it, 500 more after it. */
    count(&exact, 0, 2, 800, 2, 300);
    assert_int_equal(held(&exact, 2, 2).peak_bytes, 1300);
    assert_int_equal(held(&exact, 2, 2).live_bytes, 1800);
    /* Another thread has given back 700, of which 100 before. */
    count(&exact, 1, 2, -700, 2, -100);
    assert_int_equal(held(&exact, 2, 2).peak_bytes, 1200);
    assert_int_equal(held(&exact, 2, 2).live_bytes, 1100);
    /* The same maximum, and more of what came after it. */
    count(&exact, 0, 2, 50, 2, 0);
    assert_int_equal(held(&exact, 2, 2).peak_bytes, 1200);
    /* A new one. */
    assert_int_equal(held(&exact, 2, 3).peak_bytes, 1150);
    count(&exact, 1, 2, -1150, 3, 0);
    assert_int_equal(held(&exact, 2, 3).peak_bytes, 1150);
    assert_int_equal(held(&exact, 2, 3).live_bytes, 0);
    assert_int_equal(held(&exact, 2, 4).peak_bytes, 0);
    agent_exact_release(&exact);
}

/* What is given back may be told before what was given out, and of a site whose path is not known yet. */
static void test_order(void **state) {
    (void)state;
    struct agent_exact exact = {0};
    uint32_t path = 0;
    count(&exact, 3, 900, -64, 1, 0);
    assert_false(agent_exact_path(&exact, 900, &path));
    assert_int_equal(held(&exact, 900, 1).live_bytes, 0);
    assert_int_equal(held(&exact, 900, 1).live_count, 0);
    assert_int_equal(agent_exact_define(&exact, 900, 11), STATUS_OK);
    assert_true(agent_exact_path(&exact, 900, &path));
    assert_int_equal(path, 11);
    count(&exact, 0, 900, 164, 1, 0);
    assert_int_equal(held(&exact, 900, 2).live_bytes, 100);
    agent_exact_release(&exact);
}

static void test_nonsense(void **state) {
    (void)state;
    struct agent_exact exact = {0};
    const struct wire_counts broken[] = {
        {.slot = 1024, .site = 1},
        {.site = 0},
        {.site = 1, .live_bytes = INT64_MIN},
        {.site = 1, .live_count = INT64_MAX},
        {.site = 1, .before_bytes = INT64_MAX},
        {.site = 1, .temporary_bytes = UINT64_MAX - 5},
        {.site = 1, .temporary_bytes = INT64_MAX},
    };
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++)
        assert_int_equal(agent_exact_count(&exact, &broken[i]), STATUS_DAMAGED);
    assert_int_equal(agent_exact_define(&exact, 0, 1), STATUS_DAMAGED);
    assert_int_equal(agent_exact_define(&exact, 5, 1), STATUS_OK);
    assert_int_equal(agent_exact_define(&exact, 5, 2), STATUS_DAMAGED);
    /* Sums that no memory holds are not made. */
    for (int i = 0; i < 100; i++)
        count(&exact, 0, 5, INT64_C(1) << 56, 1, 0);
    assert_true(held(&exact, 5, 2).live_bytes < UINT64_C(1) << 57);
    agent_exact_release(&exact);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peaks),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_nonsense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
