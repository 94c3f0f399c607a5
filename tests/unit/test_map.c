#include "base/map.h"

#include "base/digest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Against a plain array, through many additions and removals of few keys, so that chains of collisions form and break.
 */
static void test_removing_leaves_the_others(void **state) {
    (void)state;
    enum { KEYS = 200, STEPS = 100000 };
    struct map map = {0};
    uint64_t values[KEYS] = {0}; /* 0: not in the map */
    uint32_t random = 1;
    for (uint64_t step = 1; step <= STEPS; step++) {
        random = random * 1664525 + 1013904223;
        uint32_t key = (random >> 16) % KEYS;
        if (random >> 31) {
            assert_int_equal(map_set(&map, key * UINT64_C(4096), step), STATUS_OK);
            values[key] = step;
        } else {
            assert_int_equal(map_remove(&map, key * UINT64_C(4096)), values[key] != 0);
            values[key] = 0;
        }
        if (step % 97 != 0)
            continue;
        size_t count = 0;
        for (uint64_t i = 0; i < KEYS; i++) {
            uint64_t value = 0;
            assert_int_equal(map_get(&map, i * 4096, &value), values[i] != 0);
            assert_int_equal(value, values[i]);
            count += values[i] != 0;
        }
        assert_int_equal(map.count, count);
    }
    map_release(&map);
    assert_false(map_remove(&map, 1));
}

static void test_contents_are_found_by_their_digests(void **state) {
    (void)state;
    struct digest_map map = {0};
    assert_int_equal(digest_map_get(&map, digest_of("x", 1)), 0);
    for (uint32_t i = 1; i <= 10000; i++) {
        assert_int_equal(digest_map_set(&map, digest_of(&i, sizeof i), i), STATUS_OK);
        assert_int_equal(digest_map_set(&map, digest_of_pair(i, 10000 - i), i + 10000), STATUS_OK);
    }
    assert_int_equal(map.count, 20000);
    for (uint32_t i = 1; i <= 10000; i++) {
        assert_int_equal(digest_map_get(&map, digest_of(&i, sizeof i)), i);
        assert_int_equal(digest_map_get(&map, digest_of_pair(i, 10000 - i)), i + 10000);
    }
    digest_map_clear(&map);
    assert_int_equal(digest_map_get(&map, digest_of_pair(1, 9999)), 0);
    digest_map_release(&map);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_removing_leaves_the_others),
        cmocka_unit_test(test_contents_are_found_by_their_digests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
